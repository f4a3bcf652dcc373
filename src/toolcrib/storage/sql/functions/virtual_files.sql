-- Chats and agents as files: the text of a session is made of its messages when it is read.

-- A message as it stands in its chat. Messages never change, so the text of a chat only grows; `add_message` counts it.
-- A summary is for the model: what it stands for is there itself.
create or replace function toolcrib.message_text(p_role text, p_content text, p_metadata jsonb, p_at timestamptz)
returns text
language sql stable parallel safe
as $$
    select case when p_role = 'summary' then '' else concat_ws(e'\n\n',
        '## ' || initcap(p_role) || ', ' || to_char(p_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS') || ' UTC',
        nullif(p_content, ''),
        (select 'Called: ' || string_agg(c #>> '{function,name}', ', ' order by n)
         from jsonb_array_elements(p_metadata -> 'tool_calls') with ordinality as called (c, n))) || e'\n\n'
    end
$$;

-- What stands above the messages. The title may change at any time, so this is not counted.
create or replace function toolcrib.chat_heading(p_title text) returns text
language sql immutable parallel safe
as $$ select coalesce('# ' || p_title || e'\n\n', '') $$;

create or replace function toolcrib.count_lines(p_text text) returns bigint
language sql immutable parallel safe
as $$ select length(p_text)::bigint - length(replace(p_text, e'\n', '')) $$;

-- Whether a regular expression may match some line of a text: never false where a search, line by line, finds one.
-- Most patterns say the same of the whole text, where newlines end lines, and that is quicker. Those that look around,
-- know the text's ends or bring options of their own are judged line by line.
create or replace function toolcrib.some_line_matches(p_text text, p_pattern text, p_ignore_case boolean)
returns boolean
language sql stable parallel safe
as $$
    select case when strpos(p_pattern, '(?') = 0 and strpos(p_pattern, '***') = 0
                     and strpos(p_pattern, '\A') = 0 and strpos(p_pattern, '\Z') = 0
    then regexp_like(replace(p_text, e'\r\n', e'\n'), p_pattern, case when p_ignore_case then 'ni' else 'n' end)
    else exists (
        select from string_to_table(p_text, e'\n') as l (line)
        cross join lateral (
            -- A carriage return before the newline belongs to it.
            select case when right(l.line, 1) = e'\r' then left(l.line, -1) else l.line end as line
        ) shown
        where case when p_ignore_case then shown.line ~* p_pattern else shown.line ~ p_pattern end)
    end
$$;
