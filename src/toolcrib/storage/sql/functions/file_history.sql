-- What a command's effect is checked against: whether someone else changed its places since the command began.

-- The newest version at each of these places that was committed by a transaction which the snapshot does not know, be
-- it a deletion. What was only noticed since, having happened on disk, is not among them: the disk tells when it was.
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
    -- By key, whatever the planner believes of the tables' sizes; few were changed lately, and only those are read on.
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
      -- A row names its writer by 32 bits: it is the latest transaction of that number.
      and not pg_visible_in_snapshot((v_now - ((v_now - v.writer) & 4294967295))::text::xid8, p_snapshot);
end
$$;
