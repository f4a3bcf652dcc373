-- What the live protocols need: a session's mode and trust, and single-use tickets.

alter table sessions add column mode text not null default 'build' check (mode in ('plan', 'build'));
-- Null: the agent's own.
alter table sessions add column trust text check (trust in ('supervised', 'guided', 'autonomous'));
-- Clients that cannot send a header when they connect bring one of these; it lives for seconds and opens once.
create table tickets (
    secret_hash    bytea primary key,
    workspace_id   uuid not null references workspaces on delete cascade,
    user_id        uuid not null references users on delete cascade,
    token_version  integer not null,
    expires_at     timestamptz not null,
    -- How long the connection that it opens may last: no longer than the login that it came from.
    valid_until    timestamptz not null
);
create index tickets_expiry on tickets (workspace_id, expires_at);
