-- Chats and agents appear in the tree by themselves, see functions/virtual_files.sql: no row of `files` is virtual.
drop index files_virtual;
alter table files drop column is_virtual;
alter type seen drop attribute is_virtual;

-- How long the text of a session's messages is, so that a listing need not read them, and when the last one came.
alter table sessions add column text_bytes bigint not null default 0;
alter table sessions add column text_lines bigint not null default 0;
alter table sessions add column updated_at timestamptz not null default now();

-- What the messages so far amount to. The text is as `toolcrib.message_text` writes it.
update sessions s set
    updated_at = coalesce(t.last_at, s.created_at),
    text_bytes = coalesce(t.bytes, 0),
    text_lines = coalesce(t.lines, 0)
from sessions o
left join (
    select m.workspace_id, m.session_id, max(m.created_at) as last_at, sum(octet_length(m.text)) as bytes,
           sum(length(m.text) - length(replace(m.text, e'\n', ''))) as lines
    from (
        select r.workspace_id, r.session_id, r.created_at,
               case when r.role = 'summary' then '' else concat_ws(e'\n\n',
                   '## ' || initcap(r.role) || ', '
                       || to_char(r.created_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS') || ' UTC',
                   nullif(r.content, ''),
                   (select 'Called: ' || string_agg(c #>> '{function,name}', ', ' order by n)
                    from jsonb_array_elements(r.metadata -> 'tool_calls') with ordinality as called (c, n))) || e'\n\n'
               end as text
        from messages r
    ) m
    group by m.workspace_id, m.session_id
) t on t.workspace_id = o.workspace_id and t.session_id = o.id
where s.workspace_id = o.workspace_id and s.id = o.id;
