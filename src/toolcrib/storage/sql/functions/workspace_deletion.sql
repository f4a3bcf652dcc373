-- Deletes a workspace: closes it to all users at once, then removes its rows in batches.

-- The caller is an owner, and the workspace is the tenant. Afterwards it has no members, so no call can start, and no
-- home, so no call in progress can commit.
create or replace function toolcrib.delete_workspace(p_workspace uuid, p_user uuid) returns void
language plpgsql volatile
as $$
begin
    insert into toolcrib.deleted_workspaces (workspace_id, node, deleted_by)
    select p_workspace, n.node, p_user
    from (select '' as node
          union select w.home_node from toolcrib.workspaces w where w.id = p_workspace and w.home_node is not null
          union select unnest(w.former_homes) from toolcrib.workspaces w where w.id = p_workspace
          union select t.node from toolcrib.trash t where t.workspace_id = p_workspace) n
    on conflict do nothing;
    update toolcrib.workspaces set home_node = '', home_epoch = home_epoch + 1 where id = p_workspace;
    -- Last, because without a member the policies hide the rows of the workspace.
    delete from toolcrib.members where workspace_id = p_workspace;
end
$$;

-- Deletes a batch of a workspace's rows from every table with a workspace_id, and returns their number. The audit log
-- keeps its rows. A table that other rows still reference is skipped until those are deleted.
create or replace function toolcrib.remove_rows(p_workspace uuid, p_limit integer) returns bigint
language plpgsql volatile
as $$
declare
    v_table    text;
    v_removed  bigint;
    v_all      bigint := 0;
begin
    for v_table in
        select c.relname from pg_catalog.pg_class c
        join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attname = 'workspace_id' and not a.attisdropped
        where c.relnamespace = 'toolcrib'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname not in ('audit_records', 'deleted_workspaces')
        order by c.relname
    loop
        begin
            execute format(
                'delete from toolcrib.%1$I where workspace_id = $1
                 and ctid = any (array(select ctid from toolcrib.%1$I where workspace_id = $1 limit $2))', v_table)
            using p_workspace, p_limit;
            get diagnostics v_removed = row_count;
            v_all := v_all + v_removed;
        exception when foreign_key_violation then
            null;
        end;
    end loop;
    if v_all = 0 then
        delete from toolcrib.workspaces where id = p_workspace;
        get diagnostics v_all = row_count;
    end if;
    return v_all;
end
$$;
