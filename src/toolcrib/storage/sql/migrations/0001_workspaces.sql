-- Workspaces, who belongs to them, and what their owners configure.

create table workspaces (
    id                uuid primary key,
    name              text not null check (length(name) between 1 and 200),
    -- Where @project is, if it is the user's own directory. Null: below the server's data directory.
    root_path         text,
    -- The node that has the tree. A commit carries the epoch that it read and fails if the epoch has changed.
    home_node         text,
    home_epoch        bigint not null default 0,
    -- Nodes that had the tree before, and may still have a copy.
    former_homes      text[] not null default '{}',
    -- No session trusts an agent more than this. Null: no limit.
    max_trust         text check (max_trust in ('supervised', 'guided', 'review', 'autonomous')),
    -- Answers messages that name no agent.
    default_agent_id  uuid,
    -- What models may use: `session`, `day` and `month`, each with `max_tokens` and `max_cost`. Null: no limit.
    budgets           jsonb,
    created_by        uuid not null references users,
    created_at        timestamptz not null default now()
);
create index workspaces_home on workspaces (home_node, id);

create table members (
    workspace_id  uuid not null references workspaces on delete cascade,
    user_id       uuid not null references users on delete cascade,
    role          text not null check (role in ('owner', 'member', 'viewer')),
    joined_at     timestamptz not null default now(),
    primary key (workspace_id, user_id)
);
create index members_user on members (user_id);

-- Invitations of people without an account. The secret is stored as a hash, works once and expires.
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

create table agents (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    name          text not null check (length(name) between 1 and 200),
    -- The text as its author wrote it, comments included; `rules` is the same, parsed.
    definition    text not null,
    rules         jsonb not null,
    -- The package that installed it. Null: an owner wrote it.
    package       text,
    created_by    uuid not null references users,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    deleted_at    timestamptz,
    primary key (workspace_id, id)
);
create unique index agents_name on agents (workspace_id, name) where deleted_at is null;

create table api_keys (
    id            uuid primary key,
    user_id       uuid not null references users on delete cascade,
    -- Both set for an agent's key: it works in that workspace only, with that agent's rules.
    workspace_id  uuid,
    agent_id      uuid,
    name          text not null check (length(name) between 1 and 200),
    -- The first characters, to identify a key in a list. The key itself is stored as a hash.
    hint          text not null,
    secret_hash   bytea not null unique,
    created_at    timestamptz not null default now(),
    expires_at    timestamptz,
    revoked_at    timestamptz,
    check ((workspace_id is null) = (agent_id is null)),
    foreign key (workspace_id, agent_id) references agents on delete cascade
);
create index api_keys_user on api_keys (user_id);

-- For clients that cannot send a header when they connect. A ticket works once and expires within seconds.
create table connection_tickets (
    secret_hash            bytea primary key,
    workspace_id           uuid not null references workspaces on delete cascade,
    user_id                uuid not null references users on delete cascade,
    token_version          integer not null,
    expires_at             timestamptz not null,
    -- When the connection that it opens must end: with the login that it came from.
    connection_expires_at  timestamptz not null
);
create index connection_tickets_expiry on connection_tickets (workspace_id, expires_at);

create table mcp_servers (
    workspace_id    uuid not null references workspaces on delete cascade,
    id              uuid not null,
    name            text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
    transport       text not null check (transport in ('stdio', 'http')),
    command         text[] not null default '{}',
    url             text,
    -- What a program may contact, and what it sees of the workspace.
    hosts           text[] not null default '{}',
    workspace_access text not null default 'none' check (workspace_access in ('none', 'read-only', 'transaction')),
    -- Request headers or environment variables, encrypted with a key that is not in the database.
    encrypted       bytea,
    key_id          text,
    secret_names    text[] not null default '{}',
    secrets_set_at  timestamptz,
    -- The tools that the owner declares safe. All others are dangerous.
    safe_tools      text[] not null default '{}',
    enabled         boolean not null default true,
    -- The tools as an owner approved them, and as the server listed them last.
    approved_tools  jsonb not null default '[]',
    approved_by     uuid,
    approved_at     timestamptz,
    offered_tools   jsonb,
    offered_at      timestamptz,
    last_error      text,
    -- Incremented by every change, so that a process knows when to build the tools again.
    revision        bigint not null default 1,
    created_by      uuid not null,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    primary key (workspace_id, id),
    check ((transport = 'stdio') = (url is null) and (transport = 'stdio') = (cardinality(command) > 0)),
    check (transport = 'stdio' or (cardinality(hosts) = 0 and workspace_access = 'none'))
);
create unique index mcp_servers_name on mcp_servers (workspace_id, name);

-- The agent package of a workspace, at most one: its documents are @pkg, and sessions run its workflow.
create table packages (
    workspace_id  uuid primary key references workspaces on delete cascade,
    name          text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
    version       text not null check (length(version) between 1 and 64),
    -- Of the archive.
    sha256        bytea not null,
    files         integer not null,
    bytes         bigint not null,
    -- The names of its agents in the workspace.
    agents        text[] not null default '{}',
    -- The document that a run starts with, and the workflow that it follows. Null: the package has no workflow.
    document      bytea,
    workflow      jsonb,
    installed_by  uuid not null,
    installed_at  timestamptz not null default now()
);

-- A workspace's totals are the sums over its slots. Writers use different slots, so that they do not wait for one row.
create table usage_counters (
    workspace_id  uuid not null,
    slot          smallint not null,
    files         bigint not null default 0,
    versions      bigint not null default 0,
    bytes         bigint not null default 0,
    primary key (workspace_id, slot)
);

-- Workspaces that are being deleted. The row stays until nothing is left, so that any process can continue after a crash.
create table deleted_workspaces (
    workspace_id  uuid not null,
    -- The node that has files of it. Empty: the database rows, which any node deletes.
    node          text not null,
    deleted_by    uuid not null,
    deleted_at    timestamptz not null default now(),
    -- The process that works on it.
    claimed_by    uuid,
    -- When everything was deleted. A call in progress may have written since, so it is checked once more.
    finished_at   timestamptz,
    primary key (workspace_id, node)
);
