-- Looks up paths, and locks them for a change. One round trip each.

-- Returns the caller's role, the workspace's home, and the file at each path: always one row per path.
-- A null user leaves the tenant unset, so that only the system role sees rows.
create or replace function toolcrib.lookup_paths(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid, p_places jsonb
) returns setof toolcrib.path_lookup
language plpgsql volatile
as $$
declare
    v_role  text;
begin
    if p_user is not null then
        v_role := toolcrib.enter_workspace(p_user, p_token_version, p_workspace, p_agent);
    end if;
    return query
    select v_role, w.root_path, w.home_node, w.home_epoch, wanted.ordinal,
           f.id, wanted.mount, wanted.path, f.type, f.version_id, f.version_number,
           f.kind, f.mode, f.sha256, f.size, f.line_count, f.content_kind, f.link_target, f.trash_id, f.inode,
           f.fingerprint, f.created_at, f.updated_at,
           f.pending, f.base_version_id,
           -- Needed only for an unknown path: what is on disk there may be left over from a crash.
           case when f.id is null then exists (select from toolcrib.pending_applies q where q.workspace_id = p_workspace)
                else coalesce(f.pending, false) end
    from rows from (jsonb_to_recordset(p_places) as (mount text, path text)) with ordinality as wanted (mount, path, ordinal)
    left join toolcrib.workspaces w on w.id = p_workspace
    -- Forces one index lookup per path, whatever table size the planner assumes: plans are cached for long.
    left join lateral (
        select f.*, p.file_id is not null as pending, p.base_version_id
        from toolcrib.files f
        left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
        where f.workspace_id = p_workspace and f.mount = wanted.mount and f.path = wanted.path and not f.deleted
        limit 1
    ) f on true
    order by wanted.ordinal;
end
$$;

-- Takes the locks of a change, then looks up the paths. The locks are session-level and last until `mark_applied`: the
-- next change of a path waits until the previous one is on disk.
-- A change takes a shared lock on the workspace and an exclusive lock on each path. A change of folders or of very many
-- files takes an exclusive lock on the workspace instead.
create or replace function toolcrib.lock_paths(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid, p_places jsonb,
    p_workspace_lock bigint, p_place_locks jsonb, p_whole boolean
) returns setof toolcrib.path_lookup
language plpgsql volatile
as $$
declare
    v_lock  bigint;
begin
    if p_whole then
        perform pg_advisory_lock(p_workspace_lock);
    else
        perform pg_advisory_lock_shared(p_workspace_lock);
        for v_lock in select value::bigint from jsonb_array_elements_text(p_place_locks) loop
            perform pg_advisory_lock(v_lock);
        end loop;
    end if;
    return query select * from toolcrib.lookup_paths(p_user, p_token_version, p_workspace, p_agent, p_places);
end
$$;
