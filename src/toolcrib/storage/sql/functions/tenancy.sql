-- The second lock. `enter_workspace` finds out whether someone belongs to a workspace and, only then, names it as the
-- transaction's tenant. Every policy compares with that name, so a statement without a tenant sees nothing.

create or replace function toolcrib.current_workspace() returns uuid
language sql stable parallel safe
as $$ select nullif(current_setting('toolcrib.workspace', true), '')::uuid $$;

create or replace function toolcrib.current_user_id() returns uuid
language sql stable parallel safe
as $$ select nullif(current_setting('toolcrib.user', true), '')::uuid $$;

-- Names the person for this transaction; for what is theirs and not a workspace's.
create or replace function toolcrib.set_current_user(p_user uuid) returns void
language sql volatile
as $$ select set_config('toolcrib.user', p_user::text, true) $$;

-- Returns the role, or null for who does not belong. A token older than the person's last "end all" is told apart
-- by its own error, because the remedy differs.
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

-- The workspaces of the acting person: what the policies on `workspaces` and `members` may show without a tenant.
create or replace function toolcrib.own_workspaces() returns setof uuid
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$ select workspace_id from members where user_id = toolcrib.current_user_id() $$;

-- Whether a workspace was founded already: only its first member may write themselves in.
create or replace function toolcrib.has_members(p_workspace uuid) returns boolean
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$ select exists (select from members where workspace_id = p_workspace) $$;
