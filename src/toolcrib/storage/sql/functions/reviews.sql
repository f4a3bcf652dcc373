-- Reviews of what a session's agent changed, and its child runs. `review_decide` is a tool; what it decides is stored with
-- its call.

-- Returns the session that people see: of a child run, the one that started it all.
create or replace function toolcrib.root_session(p_workspace uuid, p_session uuid) returns uuid
language plpgsql stable
as $$
begin
    return (select coalesce(s.root_session_id, s.id) from toolcrib.sessions s
            where s.workspace_id = p_workspace and s.id = p_session);
end
$$;

-- Returns the trust that a session's calls have now, within the owners' limits and those of its parents, as
-- policy/trust.py and policy/child_rules.py compute it.
create or replace function toolcrib.session_trust(p_workspace uuid, p_session uuid) returns text
language plpgsql stable
as $$
declare
    v_levels  constant text[] := array['supervised', 'guided', 'review', 'autonomous'];
    v_level   integer;
begin
    select least(
        array_position(v_levels, coalesce(s.trust, a.rules ->> 'trust', 'guided')),
        array_position(v_levels, w.max_trust),
        array_position(v_levels, a.rules ->> 'max_trust'),
        case when s.trust is not null and not s.trust_by_owner and a.rules ->> 'max_trust' is null
             then array_position(v_levels, a.rules ->> 'trust') end,
        array_position(v_levels, s.narrowed_to ->> 'trust'),
        case when s.parent_session_id is not null
             then array_position(v_levels, toolcrib.session_trust(p_workspace, s.parent_session_id)) end) into v_level
    from toolcrib.sessions s
    join toolcrib.workspaces w on w.id = s.workspace_id
    left join toolcrib.agents a on a.workspace_id = s.workspace_id and a.id = s.agent_id
    where s.workspace_id = p_workspace and s.id = p_session;
    return v_levels[v_level];
end
$$;

-- Whether a change of a file waits for a review, so that what it displaced stays in the trash.
create or replace function toolcrib.awaits_review(p_workspace uuid, p_change_set uuid, p_file uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from toolcrib.change_sets c
        join toolcrib.versions v
            on v.workspace_id = c.workspace_id and v.change_set_id = c.id and v.file_id = p_file
        left join toolcrib.reviewed_files r
            on r.workspace_id = c.workspace_id and r.session_id = toolcrib.root_session(c.workspace_id, c.session_id)
            and r.file_id = v.file_id
        where c.workspace_id = p_workspace and c.id = p_change_set and c.author_kind = 'agent'
          and v.version_number > coalesce(r.version_number, 0)
          and toolcrib.session_trust(c.workspace_id, c.session_id) = 'review');
end
$$;

-- Appends the event that a run or its child runs have left changes for a review, if they are reviewed. Called when a run
-- ends or waits, before the event of its state: clients stop reading at the end. Child runs are announced by the run of
-- the session that people see.
create or replace function toolcrib.announce_review(p_workspace uuid, p_session uuid, p_run uuid) returns void
language plpgsql volatile
as $$
declare
    v_sessions  uuid[];
    v_files     bigint;
begin
    if toolcrib.root_session(p_workspace, p_session) is distinct from p_session then
        return;
    end if;
    v_sessions := array(
        select s.id from (
            select p_session as id
            union all
            select s.id from toolcrib.sessions s where s.workspace_id = p_workspace and s.root_session_id = p_session
        ) s where toolcrib.session_trust(p_workspace, s.id) = 'review');
    if v_sessions = '{}' or not exists (
        with recursive below as (
            select p_run as id
            union all
            select r.id from below b
            join toolcrib.runs r on r.workspace_id = p_workspace and r.parent_run_id = b.id
        )
        select from below b
        join toolcrib.change_sets c on c.workspace_id = p_workspace and c.run_id = b.id
        where c.author_kind = 'agent' and c.state = 'committed' and c.session_id = any (v_sessions)
    ) then
        return;
    end if;
    select count(distinct v.file_id) into v_files
    from toolcrib.change_sets c
    join toolcrib.versions v on v.workspace_id = c.workspace_id and v.change_set_id = c.id
    left join toolcrib.reviewed_files r
        on r.workspace_id = c.workspace_id and r.session_id = p_session and r.file_id = v.file_id
    where c.workspace_id = p_workspace and c.session_id = any (v_sessions) and c.author_kind = 'agent'
      and c.state = 'committed' and v.kind <> 'folder' and v.version_number > coalesce(r.version_number, 0);
    if v_files > 0 then
        perform toolcrib.append_event(p_workspace, p_session, 'review', jsonb_build_object(
            'state', 'open', 'runId', p_run, 'files', v_files));
    end if;
end
$$;

-- Stores a person's decisions with the call that made them, for the session that people see. Raises TC412 if someone else has decided about one of the
-- files since: `expected` is the version up to which it was reviewed then.
create or replace function toolcrib.save_review(p_workspace uuid, p_session uuid, p_user uuid, p_review jsonb)
returns void
language plpgsql volatile
as $$
declare
    v_file     record;
    v_name     text;
    v_session  uuid := toolcrib.root_session(p_workspace, p_session);
begin
    -- Locks the session, so that decisions follow each other.
    update toolcrib.sessions set review_note = concat_ws(e'\n', review_note, p_review ->> 'note')
    where workspace_id = p_workspace and id = v_session;
    for v_file in
        select * from jsonb_to_recordset(p_review -> 'reviewed')
            as f (file_id uuid, version_number integer, expected integer, decision text)
        order by file_id
    loop
        insert into toolcrib.reviewed_files as r (workspace_id, session_id, file_id, version_number, decision, decided_by)
        values (p_workspace, v_session, v_file.file_id, v_file.version_number, v_file.decision, p_user)
        on conflict (workspace_id, session_id, file_id) do update set
            version_number = excluded.version_number, decision = excluded.decision, decided_by = excluded.decided_by,
            decided_at = now()
        where r.version_number = v_file.expected;
        if not found then
            raise exception 'someone else has decided' using errcode = 'TC412';
        end if;
    end loop;
    select coalesce(u.full_name, u.email) into v_name from toolcrib.users u where u.id = p_user;
    perform toolcrib.append_event(p_workspace, v_session, 'review', jsonb_build_object(
        'state', 'decided', 'decidedBy', v_name, 'note', p_review ->> 'note', 'kept', p_review -> 'kept',
        'reverted', p_review -> 'reverted', 'edited', p_review -> 'edited', 'conflicts', p_review -> 'conflicts', 'open', p_review -> 'open'));
end
$$;

-- Takes decisions about files back: they wait for a review again, and the model is told. Raises TC412 if someone else has
-- decided about one of the files since.
create or replace function toolcrib.reopen_review(p_workspace uuid, p_user uuid, p_files jsonb) returns void
language plpgsql volatile
as $$
declare
    v_session  record;
    v_name     text;
    v_changed  integer;
begin
    select coalesce(u.full_name, u.email) into v_name from toolcrib.users u where u.id = p_user;
    for v_session in
        select f.session_id, count(*) as files, jsonb_agg(f.path order by f.path) as paths
        from jsonb_to_recordset(coalesce(p_files, '[]')) as f (session_id uuid, path text)
        group by f.session_id order by f.session_id
    loop
        -- Locks the session, so that decisions follow each other.
        update toolcrib.sessions set review_note = concat_ws(e'\n', review_note, format(
            'The person took a review decision back. These changes of yours are there again, and wait for a review: %s%s.',
            (select string_agg(path, ', ') from (select path from jsonb_array_elements_text(v_session.paths)
                as p (path) limit 20) as first),
            case when v_session.files > 20 then format(' and %s more', v_session.files - 20) end))
        where workspace_id = p_workspace and id = v_session.session_id;
        update toolcrib.reviewed_files r set version_number = f.version_number
        from jsonb_to_recordset(p_files) as f (session_id uuid, file_id uuid, expected integer, version_number integer)
        where r.workspace_id = p_workspace and r.session_id = v_session.session_id and f.session_id = r.session_id
          and r.file_id = f.file_id and r.version_number = f.expected;
        get diagnostics v_changed = row_count;
        if v_changed < v_session.files then
            raise exception 'someone else has decided' using errcode = 'TC412';
        end if;
        perform toolcrib.append_event(p_workspace, v_session.session_id, 'review', jsonb_build_object(
            'state', 'reopened', 'decidedBy', v_name, 'reopened', v_session.paths));
    end loop;
end
$$;

-- Returns the sessions, as people see them, whose changes an undo has undone. Of the undo of an undo, those of that one.
create or replace function toolcrib.undone_sessions(p_workspace uuid, p_undone jsonb) returns setof uuid
language plpgsql stable
as $$
begin
    return query
        with recursive undone as (
            select p_undone as what
            union
            select c.result -> 'undone' from undone u
            cross join lateral jsonb_array_elements_text(u.what -> 'calls') as named (id)
            join toolcrib.tool_calls c on c.workspace_id = p_workspace and c.id = named.id::uuid and c.tool = 'undo'
        )
        select toolcrib.root_session(p_workspace, c.session_id) from undone u
        cross join lateral jsonb_array_elements_text(u.what -> 'calls') as named (id)
        join toolcrib.tool_calls c on c.workspace_id = p_workspace and c.id = named.id::uuid and c.tool <> 'undo'
        union
        select toolcrib.root_session(p_workspace, r.session_id) from undone u
        join toolcrib.runs r on r.workspace_id = p_workspace and r.id = (u.what ->> 'run_id')::uuid
        union
        select toolcrib.root_session(p_workspace, (u.what ->> 'session_id')::uuid) from undone u
        where u.what ? 'session_id';
end
$$;

-- Notes a person's undo for the models whose changes it undid: they are told with the next message, as of a review.
create or replace function toolcrib.note_undo(p_workspace uuid, p_result jsonb) returns void
language plpgsql volatile
as $$
begin
    update toolcrib.sessions s set review_note = concat_ws(e'\n', s.review_note, p_result ->> 'note')
    where s.workspace_id = p_workspace
      and s.id in (select o.id from toolcrib.sessions o
                   where o.workspace_id = p_workspace
                     and o.id in (select toolcrib.undone_sessions(p_workspace, p_result -> 'undone'))
                   order by o.id for no key update);
end
$$;
