-- Commits change sets atomically: one statement, one transaction.
-- A loop over the files looks up every row by its whole key, whatever table sizes the planner assumed for its cached
-- plans. For one file, the usual case, it is also faster.

-- Writes the change set, its blobs, the new heads and versions of its files, and their rows in `pending_applies`. If a
-- call made the change, also writes the result of the call and its audit record.
-- The caller holds the lock of every path and has checked the base versions.
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

    -- If the workspace's home has changed since the lookup, the caller's disk no longer has the tree.
    if not exists (
        select from toolcrib.workspaces w
        where w.id = p_workspace and w.home_epoch = p_epoch and coalesce(w.home_node, p_node) = p_node
    ) then
        raise exception 'another node is the home of this workspace' using errcode = 'TC421';
    end if;

    -- A blob that is already stored does not count again.
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

    -- Files that swap paths: all leave their path before any arrives, because a path has at most one live file.
    if (p_set ->> 'trades')::boolean then
        for v_moving in select (value ->> 'file_id')::uuid from jsonb_array_elements(p_files) loop
            update toolcrib.files f set deleted = true where f.workspace_id = p_workspace and f.id = v_moving;
        end loop;
    end if;

    for v_file in
        select * from jsonb_to_recordset(p_files)
            as g (file_id uuid, version_id uuid, type text, deleted boolean, mount text, path text, parent text,
                  kind text, mode integer, hash text, size bigint, line_count integer, content_kind text,
                  link_target text, trash_id uuid, inode bigint)
    loop
        select f.version_number, f.version_id, f.mount, f.path into v_base
        from toolcrib.files f where f.workspace_id = p_workspace and f.id = v_file.file_id;
        v_hash := decode(v_file.hash, 'hex');
        insert into toolcrib.files
            (workspace_id, id, mount, path, parent, type, deleted, version_id, version_number, kind, mode,
             sha256, size, line_count, content_kind, link_target, trash_id, inode)
        values
            (p_workspace, v_file.file_id, v_file.mount, v_file.path, v_file.parent, v_file.type, v_file.deleted,
             v_file.version_id, coalesce(v_base.version_number, 0) + 1, v_file.kind, v_file.mode, v_hash, v_file.size,
             v_file.line_count, v_file.content_kind, v_file.link_target, v_file.trash_id, v_file.inode)
        on conflict (workspace_id, id) do update set
            mount = excluded.mount, path = excluded.path, parent = excluded.parent, type = excluded.type,
            deleted = excluded.deleted, version_id = excluded.version_id, version_number = excluded.version_number,
            kind = excluded.kind, mode = excluded.mode, sha256 = excluded.sha256, size = excluded.size,
            line_count = excluded.line_count, content_kind = excluded.content_kind,
            link_target = excluded.link_target, trash_id = excluded.trash_id, inode = excluded.inode,
            fingerprint = null, updated_at = now();
        insert into toolcrib.versions
            (workspace_id, id, file_id, version_number, change_set_id, parent_id, deleted, mount, path, kind, mode,
             sha256, size, line_count, content_kind, link_target, trash_id, inode)
        values
            (p_workspace, v_file.version_id, v_file.file_id, coalesce(v_base.version_number, 0) + 1,
             (p_set ->> 'id')::uuid, v_base.version_id, v_file.deleted, v_file.mount, v_file.path, v_file.kind, v_file.mode, v_hash,
             v_file.size, v_file.line_count, v_file.content_kind, v_file.link_target, v_file.trash_id, v_file.inode);
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

-- Stores the fingerprints of files that match their head, without a lock. Those of another epoch are of another disk, and
-- a file that is not applied yet has none.
create or replace function toolcrib.save_fingerprints(p_workspace uuid, p_epoch bigint, p_files jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_one  record;
begin
    perform set_config('synchronous_commit', 'off', true);
    for v_one in
        select * from jsonb_to_recordset(p_files) as s (file_id uuid, version_id uuid, fingerprint bigint[])
    loop
        update files f set fingerprint = v_one.fingerprint
        where f.workspace_id = p_workspace and f.id = v_one.file_id and f.version_id = v_one.version_id
          and exists (select from workspaces w where w.id = p_workspace and w.home_epoch = p_epoch)
          and not exists (select from pending_applies p where p.workspace_id = p_workspace and p.file_id = v_one.file_id);
    end loop;
end
$$;

-- Marks a change as applied to disk: stores the fingerprints of the files, deletes their rows in `pending_applies`, and
-- releases the locks. This commit need not be durable: if it is lost, crash recovery finds the files on disk and repeats
-- it.
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
        -- Only if the version still matches: a later one may be committed and not on disk yet.
        delete from pending_applies p where found and p.workspace_id = p_workspace and p.file_id = v_one.file_id;
    end loop;
    perform pg_advisory_unlock_all();
end
$$;
