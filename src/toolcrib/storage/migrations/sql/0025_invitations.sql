-- Invitations of people who have no account yet: by a secret that is kept as a hash, once, for a time.
create table invitations (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    email         text not null,
    role          text not null check (role in ('viewer', 'member', 'owner')),
    secret_hash   bytea not null unique,
    invited_by    uuid not null,
    created_at    timestamptz not null default now(),
    expires_at    timestamptz not null,
    accepted_at   timestamptz,
    accepted_by   uuid,
    revoked_at    timestamptz,
    primary key (workspace_id, id)
);
