-- Sessions as virtual files. Their text is built from the messages when it is read.

-- Returns a message as text of its chat. Messages never change, so the text only grows; `add_message` counts its size.
-- A summary is empty: it is for the model, and the chat has the messages that it replaces.
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

-- Returns the heading above the messages. The title can change, so `add_message` does not count it.
create or replace function toolcrib.chat_heading(p_title text) returns text
language sql immutable parallel safe
as $$ select coalesce('# ' || p_title || e'\n\n', '') $$;

create or replace function toolcrib.count_lines(p_text text) returns bigint
language sql immutable parallel safe
as $$ select length(p_text)::bigint - length(replace(p_text, e'\n', '')) $$;

-- Whether a regular expression may match a line of a text. Never false if a search line by line finds a match.
-- Most patterns are matched against the whole text in newline-sensitive mode, which is faster. Patterns with lookaround,
-- anchors of the whole text or embedded options are matched line by line.
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
            -- A carriage return before the newline is part of the line ending.
            select case when right(l.line, 1) = e'\r' then left(l.line, -1) else l.line end as line
        ) shown
        where case when p_ignore_case then shown.line ~* p_pattern else shown.line ~ p_pattern end)
    end
$$;
