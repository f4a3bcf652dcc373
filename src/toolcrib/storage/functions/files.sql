-- Looking at files, and beginning and ending a change. One trip each.

-- Who the caller is here, where the tree lies, and what stands at each of the given places: always one row a place.
-- A null user leaves the tenant unset: only the system role then sees anything.
create or replace function toolcrib.look(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid, p_mounts text[], p_paths text[]
) returns setof toolcrib.seen
language plpgsql volatile
as $$
declare
    v_role  text;
begin
    if p_user is not null then
        v_role := toolcrib.enter(p_user, p_token_version, p_workspace, p_agent);
    end if;
    return query
    select v_role, w.tree, w.home_node, w.home_epoch, wanted.ordinal,
           f.id, wanted.mount, wanted.path, f.type, f.is_virtual, f.version_id, f.number,
           f.kind, f.mode, f.sha256, f.size, f.lines, f.content, f.target,
           f.fingerprint, f.created_at, f.updated_at,
           p.file_id is not null, p.base_version_id,
           exists (select from toolcrib.pending q where q.workspace_id = p_workspace)
    from unnest(p_mounts, p_paths) with ordinality as wanted (mount, path, ordinal)
    left join toolcrib.workspaces w on w.id = p_workspace
    left join toolcrib.files f
        on f.workspace_id = p_workspace and f.mount = wanted.mount and f.path = wanted.path and not f.deleted
    left join toolcrib.pending p on p.workspace_id = p_workspace and p.file_id = f.id
    order by wanted.ordinal;
end
$$;

-- Takes the locks of a change, then looks. The locks belong to the connection and outlive the transaction, until
-- `settle`: whoever changes a place waits until the change before it is on disk.
-- Everyone takes the workspace's lock shared and each place's lock whole; who changes folders or very many files
-- takes the workspace's lock whole instead.
create or replace function toolcrib.begin_change(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid, p_mounts text[], p_paths text[],
    p_workspace_lock bigint, p_place_locks bigint[], p_whole boolean
) returns setof toolcrib.seen
language plpgsql volatile
as $$
declare
    v_lock  bigint;
begin
    if p_whole then
        perform pg_advisory_lock(p_workspace_lock);
    else
        perform pg_advisory_lock_shared(p_workspace_lock);
        foreach v_lock in array p_place_locks loop
            perform pg_advisory_lock(v_lock);
        end loop;
    end if;
    return query select * from toolcrib.look(p_user, p_token_version, p_workspace, p_agent, p_mounts, p_paths);
end
$$;

-- The change is on disk: remember how the files look there, clear their marks, give the locks back.
-- Its own commit need not reach the platter: if it is lost, recovery finds the disk right and clears the marks.
create or replace function toolcrib.settle(
    p_workspace uuid, p_files uuid[], p_versions uuid[],
    p_inodes bigint[], p_sizes bigint[], p_mtimes bigint[], p_ctimes bigint[], p_seen bigint[]
) returns void
language plpgsql volatile security definer set search_path = toolcrib, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update files f
    set fingerprint = case when s.inode is null then null else array[s.inode, s.size, s.mtime, s.ctime, s.seen] end
    from unnest(p_files, p_versions, p_inodes, p_sizes, p_mtimes, p_ctimes, p_seen)
         as s (file_id, version_id, inode, size, mtime, ctime, seen)
    where f.workspace_id = p_workspace and f.id = s.file_id and f.version_id = s.version_id;
    delete from pending where workspace_id = p_workspace and file_id = any (p_files);
    perform pg_advisory_unlock_all();
end
$$;
