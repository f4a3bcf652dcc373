-- Committing a change set: everything that must be true together, in one statement and so in one transaction.
-- Files are gone through one by one: so every row is looked up by its whole key, whatever the planner believed of the
-- tables' sizes when it made the plans that are kept. For one file, the usual case, it is also the quicker way.

-- Writes the set, its contents, its files at their new heads, their versions and the marks that say "not on disk yet";
-- and, if it came of a call, the call's outcome and its record in the book.
-- Whoever calls holds the locks of every place and has checked the base.
create or replace function toolcrib.commit_change_set(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid, p_node text, p_epoch bigint,
    p_set jsonb, p_files jsonb, p_call jsonb, p_audit jsonb, p_blobs jsonb, p_bodies bytea[]
) returns text
language plpgsql volatile
as $$
declare
    v_role    text;
    v_bytes   bigint;
    v_moving  uuid;
    v_file    record;
    v_base    record;
    v_hash    bytea;
begin
    if p_user is not null then
        v_role := toolcrib.enter_workspace(p_user, p_token_version, p_workspace, p_agent);
    end if;

    -- The node that holds the tree may have changed since the caller looked; then its disk is not the tree any more.
    if not exists (
        select from toolcrib.workspaces w
        where w.id = p_workspace and w.home_epoch = p_epoch and coalesce(w.home_node, p_node) = p_node
    ) then
        raise exception 'another node is the home of this workspace' using errcode = 'TC409';
    end if;

    -- What is stored already costs nothing more.
    with stored as (
        insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body)
        select p_workspace, decode(b.hash, 'hex'), b.size, b.encoding, b.body
        from rows from (jsonb_to_recordset(p_blobs) as (hash text, size bigint, encoding text), unnest(p_bodies))
             as b (hash, size, encoding, body)
        on conflict do nothing
        returning size
    )
    select coalesce(sum(size), 0) into v_bytes from stored;

    insert into toolcrib.change_sets
        (workspace_id, id, state, author_kind, user_id, agent_id, session_id, run_id, call_id, committed_at)
    select p_workspace, s.id, 'committed', s.author_kind, s.user_id, s.agent_id, s.session_id, s.run_id, s.call_id, now()
    from jsonb_to_record(p_set) as s (id uuid, author_kind text, user_id uuid, agent_id uuid, session_id uuid, run_id uuid,
                                      call_id uuid)
    on conflict (workspace_id, id) do update set state = 'committed', committed_at = now()
    where change_sets.state = 'proposed';

    -- Files that trade places: each leaves its own before any arrives, since a place holds one live file.
    if (p_set ->> 'trades')::boolean then
        for v_moving in select (value ->> 'file_id')::uuid from jsonb_array_elements(p_files) loop
            update toolcrib.files f set deleted = true where f.workspace_id = p_workspace and f.id = v_moving;
        end loop;
    end if;

    for v_file in
        select * from jsonb_to_recordset(p_files)
            as g (file_id uuid, version_id uuid, type text, deleted boolean, mount text, path text, parent text,
                  kind text, mode integer, hash text, size bigint, line_count integer, content_kind text,
                  target text)
    loop
        select f.version_number, f.version_id, f.mount, f.path into v_base
        from toolcrib.files f where f.workspace_id = p_workspace and f.id = v_file.file_id;
        v_hash := decode(v_file.hash, 'hex');
        insert into toolcrib.files
            (workspace_id, id, mount, path, parent, type, deleted, version_id, version_number, kind, mode,
             sha256, size, line_count, content_kind, target)
        values
            (p_workspace, v_file.file_id, v_file.mount, v_file.path, v_file.parent, v_file.type, v_file.deleted,
             v_file.version_id, coalesce(v_base.version_number, 0) + 1, v_file.kind, v_file.mode, v_hash, v_file.size,
             v_file.line_count, v_file.content_kind, v_file.target)
        on conflict (workspace_id, id) do update set
            mount = excluded.mount, path = excluded.path, parent = excluded.parent, type = excluded.type,
            deleted = excluded.deleted, version_id = excluded.version_id, version_number = excluded.version_number,
            kind = excluded.kind, mode = excluded.mode, sha256 = excluded.sha256, size = excluded.size,
            line_count = excluded.line_count, content_kind = excluded.content_kind, target = excluded.target,
            fingerprint = null, updated_at = now();
        insert into toolcrib.versions
            (workspace_id, id, file_id, version_number, change_set_id, parent_id, deleted, mount, path, kind, mode,
             sha256, size, line_count, content_kind, target)
        values
            (p_workspace, v_file.version_id, v_file.file_id, coalesce(v_base.version_number, 0) + 1,
             (p_set ->> 'id')::uuid, v_base.version_id, v_file.deleted, v_file.mount, v_file.path, v_file.kind, v_file.mode, v_hash,
             v_file.size, v_file.line_count, v_file.content_kind, v_file.target);
        insert into toolcrib.pending_applies (workspace_id, file_id, base_version_id, base_mount, base_path)
        values (p_workspace, v_file.file_id, v_base.version_id, v_base.mount, v_base.path)
        on conflict (workspace_id, file_id) do nothing;
    end loop;

    insert into toolcrib.usage_counters as u (workspace_id, slot, files, versions, bytes)
    values (p_workspace, pg_backend_pid() % 16, (p_set ->> 'new_files')::bigint, jsonb_array_length(p_files),
            v_bytes)
    on conflict (workspace_id, slot) do update set
        files = u.files + excluded.files, versions = u.versions + excluded.versions, bytes = u.bytes + excluded.bytes;

    if p_call is not null then
        perform toolcrib.save_tool_call(p_workspace, p_call);
    end if;
    if p_audit is not null then
        perform toolcrib.append_audit_records(p_audit);
    end if;
    return v_role;
end
$$;

-- The change is on disk: remember how the files look there, clear their marks, give the locks back.
-- Its own commit need not reach the platter: if it is lost, recovery finds the disk right and clears the marks.
create or replace function toolcrib.mark_applied(p_workspace uuid, p_settled jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_one  record;
begin
    perform set_config('synchronous_commit', 'off', true);
    for v_one in
        select * from jsonb_to_recordset(p_settled) as s (file_id uuid, version_id uuid, fingerprint bigint[])
    loop
        update files f set fingerprint = v_one.fingerprint
        where f.workspace_id = p_workspace and f.id = v_one.file_id and f.version_id = v_one.version_id;
        -- Only with the version that was seen: a later one may be committed and not on disk yet.
        delete from pending_applies p where found and p.workspace_id = p_workspace and p.file_id = v_one.file_id;
    end loop;
    perform pg_advisory_unlock_all();
end
$$;
