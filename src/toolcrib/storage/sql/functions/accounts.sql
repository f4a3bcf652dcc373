-- Lookups before a user is authenticated: by email, by the hash of a token, by the hash of a key.

create or replace function toolcrib.find_login(p_email text)
returns table (id uuid, email text, full_name text, password_hash text, token_version integer)
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    select u.id, u.email, u.full_name, u.password_hash, u.token_version
    from users u where u.email = lower(p_email) and u.disabled_at is null
$$;

create or replace function toolcrib.find_refresh_token(p_hash bytea)
returns table (id uuid, user_id uuid, family_id uuid, expires_at timestamptz, used_at timestamptz,
               revoked_at timestamptz, email text, token_version integer)
language sql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    select t.id, t.user_id, t.family_id, t.expires_at, t.used_at, t.revoked_at, u.email, u.token_version
    from refresh_tokens t join users u on u.id = t.user_id and u.disabled_at is null
    where t.secret_hash = p_hash
    for update of t
$$;

create or replace function toolcrib.find_api_key(p_hash bytea)
returns table (id uuid, user_id uuid, email text, token_version integer, workspace_id uuid, agent_id uuid,
               agent_name text, rules jsonb, grants jsonb, max_trust text)
language plpgsql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
begin
    return query
    select k.id, k.user_id, u.email, u.token_version, k.workspace_id, k.agent_id, a.name, a.rules,
           case when a.id is not null then toolcrib.agent_grants(k.workspace_id, k.agent_id) end,
           w.max_trust
    from api_keys k
    join users u on u.id = k.user_id and u.disabled_at is null
    left join agents a on a.workspace_id = k.workspace_id and a.id = k.agent_id and a.deleted_at is null
    left join workspaces w on w.id = a.workspace_id
    where k.secret_hash = p_hash and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
      and (k.agent_id is null or a.id is not null);
end
$$;

-- Whether there are accounts. The server's setup link creates the first one, the operator's.
create or replace function toolcrib.has_users() returns boolean
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$ select exists (select from users) $$;

-- Makes the very first account an administrator.
create or replace function toolcrib.make_first_administrator(p_user uuid) returns void
language sql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    update users set is_administrator = true
    where id = p_user and not exists (select from users other where other.id <> p_user)
$$;

-- Returns the user of a valid link for a new password. Before they are authenticated.
create or replace function toolcrib.find_password_reset(p_hash bytea) returns uuid
language sql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    select id from users
    where reset_hash = p_hash and reset_expires_at > now() and disabled_at is null
    for no key update
$$;

-- Finds a user by email, to add them as a member. Returns only the id.
create or replace function toolcrib.find_user(p_email text) returns uuid
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$ select id from users where email = lower(p_email) and disabled_at is null $$;

create or replace function toolcrib.revoke_token_family(p_family uuid) returns void
language sql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    update refresh_tokens set revoked_at = now() where family_id = p_family and revoked_at is null
$$;
