-- Search over sessions, and forks: sessions that continue another one from one of its messages.

-- Returns the tenant's sessions whose title or messages have words that begin with those of the query, the newest
-- matches first, each session once.
--
-- The operator of text search is not leakproof, so under a policy the indexes could not be used. This function is not
-- subject to the policies; it reads the current tenant only, which the indexes contain as a word.
create or replace function toolcrib.search_sessions(p_query text, p_limit integer)
returns table (session_id uuid, message_id uuid, role text, excerpt text, found_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_workspace  uuid := toolcrib.current_workspace();
    v_words      text[];
    v_query      tsquery;
begin
    select array_agg(w) into v_words
    from regexp_split_to_table(lower(regexp_replace(p_query, '[[:punct:]]+', ' ', 'g')), '\s+') w where w <> '';
    if v_workspace is null or v_words is null then
        return;
    end if;
    select (quote_literal(v_workspace::text) || ' & ' || string_agg(quote_literal(w) || ':*', ' & '))::tsquery
    into v_query from unnest(v_words) w;
    return query
        with hit as (
            select s.id as session_id, null::uuid as message_id, null::text as role, s.title as content, s.created_at
            from toolcrib.sessions s
            where (array_to_tsvector(array[s.workspace_id::text])
                   || to_tsvector('simple', regexp_replace(s.title, '[[:punct:]]+', ' ', 'g'))) @@ v_query
              and s.workspace_id = v_workspace
            union all
            select m.session_id, m.id, m.role, m.content, m.created_at
            from toolcrib.messages m
            where (array_to_tsvector(array[m.workspace_id::text])
                   || to_tsvector('simple', regexp_replace(left(m.content, 20000), '[[:punct:]]+', ' ', 'g'))) @@ v_query
              and m.workspace_id = v_workspace and m.role <> 'summary'
        ), best as (
            -- A title says more than a message, a later message more than an earlier one.
            select distinct on (h.session_id) h.* from hit h
            order by h.session_id, h.message_id is not null, h.created_at desc
        )
        select b.session_id, b.message_id, b.role, toolcrib.excerpt(b.content, v_words[1]), b.created_at
        from best b order by b.message_id is not null, b.created_at desc limit p_limit;
end
$$;

-- Returns the part of a text around a word, in one line.
create or replace function toolcrib.excerpt(p_text text, p_word text) returns text
language sql immutable parallel safe
as $$
    select regexp_replace(substr(p_text, greatest(1, strpos(lower(p_text), p_word) - 60), 240), '\s+', ' ', 'g')
$$;

-- Copies the messages of a session up to one of them into a new session, with their events. Messages get new ids with the
-- same times. Calls stay those of the original: they were made once. Returns whether the message exists.
--
-- p_includes: copy that message too; otherwise only those before it.
create or replace function toolcrib.copy_messages(
    p_workspace uuid, p_from uuid, p_to uuid, p_message uuid, p_includes boolean
) returns boolean
language plpgsql volatile
as $$
declare
    v_message  record;
    v_ids      jsonb;
    v_last     bigint;
begin
    select m.position, m.metadata into v_message from toolcrib.messages m
    where m.workspace_id = p_workspace and m.session_id = p_from and m.id = p_message;
    if not found then
        return false;
    end if;
    -- The events of a message and of its calls name it.
    select case when p_includes then max(e.seq) else min(e.seq) - 1 end into v_last from toolcrib.events e
    where e.workspace_id = p_workspace and e.session_id = p_from and e.payload ->> 'messageId' = p_message::text;
    -- The first half of an id is its time.
    select coalesce(jsonb_object_agg(m.id, overlay(m.id::text placing substr(gen_random_uuid()::text, 20) from 20)), '{}')
    into v_ids from toolcrib.messages m
    where m.workspace_id = p_workspace and m.session_id = p_from
      and (m.position < v_message.position or (p_includes and m.position = v_message.position));
    insert into toolcrib.messages
        (workspace_id, session_id, position, id, run_id, role, content, metadata, summary_id, created_at)
    select p_workspace, p_to, m.position, (v_ids ->> m.id::text)::uuid, m.run_id, m.role, m.content, m.metadata,
           -- Without its summary, a message is part of the conversation again.
           (v_ids ->> m.summary_id::text)::uuid, m.created_at
    from toolcrib.messages m
    where m.workspace_id = p_workspace and m.session_id = p_from and v_ids ? m.id::text;
    -- Runs are not copied: what they used was used once.
    insert into toolcrib.events (workspace_id, session_id, seq, type, payload, created_at)
    select p_workspace, p_to, row_number() over (order by e.seq), e.type,
           e.payload || case when v_ids ? (e.payload ->> 'messageId')
                             then jsonb_build_object('messageId', v_ids -> (e.payload ->> 'messageId'))
                             else '{}' end,
           e.created_at
    from toolcrib.events e
    where e.workspace_id = p_workspace and e.session_id = p_from and e.seq <= v_last
      and e.type in ('message', 'stream-end', 'tool-start', 'tool-result', 'tool-confirm', 'question', 'pause-ended',
                     'child-run');
    update toolcrib.sessions s set
        last_seq = (select coalesce(max(e.seq), 0) from toolcrib.events e
                    where e.workspace_id = p_workspace and e.session_id = p_to),
        (last_message_position, text_bytes, text_lines) = (
            select coalesce(max(m.position), 0), coalesce(sum(octet_length(t.text)), 0),
                   coalesce(sum(toolcrib.count_lines(t.text)), 0)
            from toolcrib.messages m
            cross join lateral toolcrib.message_text(m.role, m.content, m.metadata, m.created_at) as t (text)
            where m.workspace_id = p_workspace and m.session_id = p_to)
    where s.workspace_id = p_workspace and s.id = p_to;
    return true;
end
$$;
