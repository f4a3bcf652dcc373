-- The first schema. Every tenant's table is keyed by workspace first, so that it can be partitioned
-- or distributed by that key. Who may see what stands in functions/ (tenancy) and at the end (policies).

create table users (
    id             uuid primary key,
    email          text not null unique check (email = lower(email)),
    full_name      text,
    password_hash  text not null,
    -- Raised to end every access token of this person at once.
    token_version  integer not null default 0,
    created_at     timestamptz not null default now(),
    disabled_at    timestamptz
);

create table refresh_tokens (
    id           uuid primary key,
    user_id      uuid not null references users on delete cascade,
    -- All tokens that came of one login. A token used twice ends its whole family.
    family_id    uuid not null,
    secret_hash  bytea not null unique,
    issued_at    timestamptz not null default now(),
    expires_at   timestamptz not null,
    used_at      timestamptz,
    revoked_at   timestamptz
);
create index refresh_tokens_family on refresh_tokens (family_id);
create index refresh_tokens_user on refresh_tokens (user_id);

create table workspaces (
    id          uuid primary key,
    name        text not null check (length(name) between 1 and 200),
    -- Where @project lies, if it is a directory of the user's own; else below the server's data directory.
    tree        text,
    -- The node that holds the tree. Commits carry the epoch they believe in and are refused if it has passed.
    home_node   text,
    home_epoch  bigint not null default 0,
    created_by  uuid not null references users,
    created_at  timestamptz not null default now()
);

create table members (
    workspace_id  uuid not null references workspaces on delete cascade,
    user_id       uuid not null references users on delete cascade,
    role          text not null check (role in ('owner', 'member', 'viewer')),
    joined_at     timestamptz not null default now(),
    primary key (workspace_id, user_id)
);
create index members_user on members (user_id);

create table agents (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    name          text not null check (length(name) between 1 and 200),
    -- As its owner wrote it, comments included; `rules` is the same, parsed.
    definition    text not null,
    rules         jsonb not null,
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
    -- Set for an agent's key: it acts in that workspace only, with that agent's rules.
    workspace_id  uuid,
    agent_id      uuid,
    name          text not null check (length(name) between 1 and 200),
    -- The first characters, to tell keys apart in a list. The rest is kept as a hash only.
    hint          text not null,
    secret_hash   bytea not null unique,
    created_at    timestamptz not null default now(),
    expires_at    timestamptz,
    revoked_at    timestamptz,
    check ((workspace_id is null) = (agent_id is null)),
    foreign key (workspace_id, agent_id) references agents on delete cascade
);
create index api_keys_user on api_keys (user_id);

-- The history ---------------------------------------------------------------------------------------

create table blobs (
    workspace_id  uuid not null,
    sha256        bytea not null check (length(sha256) = 32),
    size          bigint not null,
    encoding      text not null check (encoding in ('raw', 'zlib')),
    body          bytea not null,
    created_at    timestamptz not null default now(),
    primary key (workspace_id, sha256)
);
-- Compressed by us where it pays; PostgreSQL need not try again.
alter table blobs alter column body set storage external;

create table change_sets (
    workspace_id  uuid not null,
    id            uuid not null,
    state         text not null check (state in ('proposed', 'committed', 'dropped')),
    author        text not null check (author in ('user', 'agent', 'external', 'system')),
    user_id       uuid,
    agent_id      uuid,
    session_id    uuid,
    run_id        uuid,
    call_id       uuid,
    created_at    timestamptz not null default now(),
    committed_at  timestamptz,
    primary key (workspace_id, id)
);
create index change_sets_call on change_sets (workspace_id, call_id) where call_id is not null;
create index change_sets_session on change_sets (workspace_id, session_id) where session_id is not null;
create index change_sets_run on change_sets (workspace_id, run_id) where run_id is not null;
create index change_sets_proposed on change_sets (workspace_id) where state = 'proposed';

-- A file, folder or link at its head version. The head's state is repeated here, so that looking costs one row.
-- No index names a column that an ordinary write changes: such updates stay within their page (HOT).
create table files (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    mount         text collate "C" not null,
    path          text collate "C" not null check (path like '/%'),
    parent        text collate "C" not null,
    type          text not null,
    is_virtual    boolean not null default false,
    deleted       boolean not null default false,
    version_id    uuid not null,
    number        integer not null,
    kind          text not null check (kind in ('file', 'folder', 'link')),
    mode          integer not null,
    sha256        bytea,
    size          bigint not null,
    lines         integer,
    content       text not null check (content in ('text', 'json', 'binary')),
    target        text,
    -- inode, size, mtime, ctime and the time of looking, all in ns, when the disk was last seen to hold the head.
    fingerprint   bigint[],
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    primary key (workspace_id, id)
) with (fillfactor = 80);
create unique index files_live on files (workspace_id, mount, path) where not deleted;
create index files_virtual on files (workspace_id, mount) where is_virtual and not deleted;
create index files_deleted on files (workspace_id, mount, path) where deleted;

create table versions (
    workspace_id   uuid not null,
    id             uuid not null,
    file_id        uuid not null,
    number         integer not null,
    change_set_id  uuid not null,
    previous_id    uuid,
    deleted        boolean not null,
    mount          text collate "C" not null,
    path           text collate "C" not null,
    kind           text not null,
    mode           integer not null,
    sha256         bytea,
    size           bigint not null,
    lines          integer,
    content        text not null,
    target         text,
    created_at     timestamptz not null default now(),
    primary key (workspace_id, id),
    unique (workspace_id, file_id, number),
    foreign key (workspace_id, file_id) references files on delete cascade,
    foreign key (workspace_id, change_set_id) references change_sets,
    -- Nothing that a version refers to can be collected, whoever collects.
    foreign key (workspace_id, sha256) references blobs
);
create index versions_change_set on versions (workspace_id, change_set_id);
create index versions_blob on versions (workspace_id, sha256) where sha256 is not null;

-- Committed and not yet known to be on disk. `base_version_id` is what the disk held before, and where.
create table pending (
    workspace_id     uuid not null,
    file_id          uuid not null,
    base_version_id  uuid,
    base_mount       text collate "C",
    base_path        text collate "C",
    since            timestamptz not null default now(),
    primary key (workspace_id, file_id)
);
-- Rows come and go with every write: it is cleaned often, since every look at an unknown path asks it.
alter table pending set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The changes of a proposed set. Once committed they are versions.
create table proposed_changes (
    workspace_id     uuid not null,
    change_set_id    uuid not null,
    ordinal          integer not null,
    file_id          uuid not null,
    version_id       uuid not null,
    type             text not null,
    base_version_id  uuid,
    before           jsonb,
    after            jsonb,
    sha256           bytea,
    primary key (workspace_id, change_set_id, ordinal),
    foreign key (workspace_id, change_set_id) references change_sets on delete cascade,
    foreign key (workspace_id, sha256) references blobs
);

-- Calls, sessions, events ---------------------------------------------------------------------------

create table sessions (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    title         text,
    agent_id      uuid,
    created_by    uuid not null,
    created_at    timestamptz not null default now(),
    -- The number of the session's newest durable event.
    last_seq      bigint not null default 0,
    primary key (workspace_id, id)
);

create table events (
    workspace_id  uuid not null,
    session_id    uuid not null,
    seq           bigint not null,
    type          text not null,
    payload       jsonb not null,
    at            timestamptz not null default now(),
    primary key (workspace_id, session_id, seq),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);

-- Calls that change something, belong to a session or a run, or whose result was cut for its reader.
create table tool_calls (
    workspace_id   uuid not null,
    id             uuid not null,
    session_id     uuid,
    run_id         uuid,
    fence          bigint,
    user_id        uuid not null,
    agent_id       uuid,
    tool           text not null,
    arguments      jsonb not null,
    state          text not null check (state in ('running', 'done', 'refused', 'waiting', 'unknown')),
    result         jsonb,
    error          jsonb,
    change_set_id  uuid,
    started_at     timestamptz not null default now(),
    ended_at       timestamptz,
    primary key (workspace_id, id)
);
create index tool_calls_session on tool_calls (workspace_id, session_id) where session_id is not null;
create index tool_calls_run on tool_calls (workspace_id, run_id) where run_id is not null;

-- The book ------------------------------------------------------------------------------------------

create table audit (
    position      bigint generated always as identity primary key,
    id            uuid not null,
    workspace_id  uuid not null,
    at            timestamptz not null,
    user_id       uuid not null,
    agent_id      uuid,
    session_id    uuid,
    run_id        uuid,
    call_id       uuid not null,
    via           text not null,
    tool          text not null,
    decision      text not null,
    rule          text not null,
    approver_id   uuid,
    input         jsonb not null,
    outcome       text not null,
    error_code    text,
    -- [{path, before, after}], hashes in hex, for every file the call changed.
    files         jsonb not null default '[]',
    isolation     text,
    duration_us   bigint not null
);
create index audit_workspace on audit (workspace_id, position);

-- Each seal closes a batch: `mac` is a keyed hash over the seal before it and every record it covers.
create table seals (
    number     bigint primary key,
    covered    int8multirange not null,
    -- Positions below the newest sealed one that held no record yet; a late commit may still fill them.
    open       int8multirange not null,
    -- The highest position that this or an earlier seal has reached.
    top        bigint not null,
    records    integer not null,
    mac        bytea not null,
    sealed_at  timestamptz not null default now()
);
create index seals_time on seals (sealed_at);

-- Counted in slots, so that writers of one workspace do not queue for one row. The sum is the figure.
create table usage (
    workspace_id  uuid not null,
    slot          smallint not null,
    files         bigint not null default 0,
    versions      bigint not null default 0,
    bytes         bigint not null default 0,
    calls         bigint not null default 0,
    primary key (workspace_id, slot)
);

-- What a look gives for one place: the caller's role and the workspace's home, then the file if there is one.
create type seen as (
    role text, tree text, home_node text, home_epoch bigint, ordinal bigint,
    id uuid, mount text, path text, type text, is_virtual boolean, version_id uuid, number integer,
    kind text, mode integer, sha256 bytea, size bigint, lines integer, content text, target text,
    fingerprint bigint[], created_at timestamptz, updated_at timestamptz,
    pending boolean, base_version_id uuid,
    -- Whether anything at all is being applied in the workspace.
    any_pending boolean
);
