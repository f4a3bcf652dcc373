-- MCP servers that a workspace's owners have added, and the tools of theirs that were approved.

create table mcp_servers (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    name          text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
    transport     text not null check (transport in ('stdio', 'http')),
    command       text[] not null default '{}',
    url           text,
    -- Headers of requests or variables of the environment, encrypted with a key that lies outside the database.
    sealed        bytea,
    key_id        text,
    -- The tools that the owner calls safe. The others are dangerous.
    safe          text[] not null default '{}',
    enabled       boolean not null default true,
    -- What an owner has looked at and allowed, and what the server offered last.
    approved      jsonb not null default '[]',
    approved_by   uuid,
    approved_at   timestamptz,
    seen          jsonb,
    seen_at       timestamptz,
    problem       text,
    -- Grows with every change; whoever holds tools of an earlier one makes them anew.
    revision      bigint not null default 1,
    created_by    uuid not null,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    primary key (workspace_id, id),
    check ((transport = 'stdio') = (url is null) and (transport = 'stdio') = (cardinality(command) > 0))
);
create unique index mcp_servers_name on mcp_servers (workspace_id, name);
