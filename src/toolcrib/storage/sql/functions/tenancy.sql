-- Defence in depth: `enter_workspace` checks that a user is a member of a workspace, and only then sets it as the
-- transaction's tenant. Every policy compares with the tenant, so a statement without a tenant sees no rows.

create or replace function toolcrib.current_workspace() returns uuid
language sql stable parallel safe
as $$ select nullif(current_setting('toolcrib.workspace', true), '')::uuid $$;

create or replace function toolcrib.current_user_id() returns uuid
language sql stable parallel safe
as $$ select nullif(current_setting('toolcrib.user', true), '')::uuid $$;

-- Sets the user of this transaction, for rows that belong to the user and not to a workspace.
create or replace function toolcrib.set_current_user(p_user uuid) returns void
language sql volatile
as $$ select set_config('toolcrib.user', p_user::text, true) $$;

-- Returns the role, or null for a user who is not a member. Raises TC401 for a revoked token, a separate error because
-- the remedy differs.
create or replace function toolcrib.enter_workspace(
    p_user uuid, p_token_version integer, p_workspace uuid, p_agent uuid
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_role     text;
    v_version  integer;
begin
    select u.token_version, m.role into v_version, v_role
    from toolcrib.users u left join toolcrib.members m on m.user_id = u.id and m.workspace_id = p_workspace
    where u.id = p_user and u.disabled_at is null;
    if v_version is null or v_version <> coalesce(p_token_version, v_version) then
        raise exception 'token is no longer valid' using errcode = 'TC401';
    end if;
    if p_agent is not null and not exists (
        select from toolcrib.agents a where a.workspace_id = p_workspace and a.id = p_agent and a.deleted_at is null
    ) then
        v_role := null;
    end if;
    perform set_config('toolcrib.user', p_user::text, true),
            set_config('toolcrib.workspace', case when v_role is null then '' else p_workspace::text end, true);
    return v_role;
end
$$;

-- Returns the workspaces of the current user, which the policies on `workspaces` show without a tenant.
create or replace function toolcrib.own_workspaces() returns setof uuid
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$ select workspace_id from members where user_id = toolcrib.current_user_id() $$;

-- Whether a workspace has members. Only the first one may add themselves.
create or replace function toolcrib.has_members(p_workspace uuid) returns boolean
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$ select exists (select from members where workspace_id = p_workspace) $$;
