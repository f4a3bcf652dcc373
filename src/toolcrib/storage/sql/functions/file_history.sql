-- Detects conflicts of a command's effect: changes of the same paths by others since the command started.

-- Returns the head version, also a deletion, of each path that a transaction outside the snapshot committed. Skips
-- external changes, which were only detected since: their time comes from the disk.
create or replace function toolcrib.changed_since(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid, p_snapshot pg_snapshot, p_places jsonb
) returns table (mount text, path text, version_id uuid)
language plpgsql volatile
as $$
declare
    v_now  bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
    if p_user is not null then
        perform toolcrib.enter_workspace(p_user, p_token_version, p_workspace, p_agent);
    end if;
    return query
    select w.mount, w.path, f.version_id
    from jsonb_to_recordset(p_places) as w (mount text, path text)
    -- Forces lookups by key, whatever table sizes the planner assumes. Reads on only for the few recently changed.
    cross join lateral (
        (select g.version_id from toolcrib.files g
         where g.workspace_id = p_workspace and g.mount = w.mount and g.path = w.path and not g.deleted
           and g.updated_at > now() - interval '1 day' limit 1)
        union all
        (select g.version_id from toolcrib.files g
         where g.workspace_id = p_workspace and g.mount = w.mount and g.path = w.path and g.deleted
           and g.updated_at > now() - interval '1 day' offset 0)
    ) f
    cross join lateral (
        select v.xmin::text::bigint as writer, v.change_set_id from toolcrib.versions v
        where v.workspace_id = p_workspace and v.id = f.version_id limit 1
    ) v
    cross join lateral (
        select c.author_kind from toolcrib.change_sets c
        where c.workspace_id = p_workspace and c.id = v.change_set_id limit 1
    ) c
    where c.author_kind <> 'external'
      -- xmin has 32 bits: the writer is the latest transaction with this number.
      and not pg_visible_in_snapshot((v_now - ((v_now - v.writer) & 4294967295))::text::xid8, p_snapshot);
end
$$;
