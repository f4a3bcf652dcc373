-- People, their logins and their keys for model providers.
--
-- All tables: rows of a workspace have workspace_id first in their primary key, so that a table can be partitioned or
-- distributed by it. Privileges and row-level security policies are in sql/functions/zz_privileges.sql.

create table users (
    id               uuid primary key,
    email            text not null unique check (email = lower(email)),
    full_name        text,
    password_hash    text not null,
    -- Incremented to invalidate all access tokens of this user.
    token_version    integer not null default 0,
    -- When that happened last. Open connections poll it.
    logins_ended_at  timestamptz,
    created_at       timestamptz not null default now(),
    disabled_at      timestamptz,
    -- May manage the accounts of this installation. Gives no access to any workspace.
    is_administrator boolean not null default false,
    -- The secret of a link with which the person sets a new password. At most one is valid.
    reset_hash       bytea unique,
    reset_expires_at timestamptz
);
create index users_logins_ended on users (logins_ended_at) where logins_ended_at is not null;

create table refresh_tokens (
    id           uuid primary key,
    user_id      uuid not null references users on delete cascade,
    -- All tokens of one login. Reuse of a token revokes its whole family.
    family_id    uuid not null,
    secret_hash  bytea not null unique,
    issued_at    timestamptz not null default now(),
    expires_at   timestamptz not null,
    used_at      timestamptz,
    revoked_at   timestamptz,
    -- Who asked for it: shown to the user in the list of their logins.
    address      text not null default '',
    client       text not null default ''
);
create index refresh_tokens_family on refresh_tokens (family_id);
create index refresh_tokens_user on refresh_tokens (user_id);

-- A user's own key for a model provider, encrypted with a key that is not in the database.
create table provider_credentials (
    user_id     uuid not null references users on delete cascade,
    provider    text not null,
    base_url    text,
    encrypted   bytea not null,
    key_id      text not null,
    -- How many model requests may run at once, and how many may start within a minute. Null: no limit.
    at_once     integer check (at_once > 0),
    per_minute  integer check (per_minute > 0),
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    primary key (user_id, provider)
);
