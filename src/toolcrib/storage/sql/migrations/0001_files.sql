-- Files and their history.

create table blobs (
    workspace_id  uuid not null,
    sha256        bytea not null check (length(sha256) = 32),
    size          bigint not null,
    encoding      text not null check (encoding in ('raw', 'zlib')),
    body          bytea not null,
    created_at    timestamptz not null default now(),
    primary key (workspace_id, sha256)
);
-- The program compresses what compresses well; PostgreSQL need not try again.
alter table blobs alter column body set storage external;

create table change_sets (
    workspace_id  uuid not null,
    id            uuid not null,
    state         text not null check (state in ('proposed', 'committed', 'dropped')),
    author_kind   text not null check (author_kind in ('user', 'agent', 'external', 'system')),
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

-- A file, folder or link at its head version. It repeats the head's state, so that a lookup reads one row.
-- No index has a column that an ordinary write changes, so that such updates stay in their page (HOT).
create table files (
    workspace_id    uuid not null references workspaces on delete cascade,
    id              uuid not null,
    mount           text collate "C" not null,
    path            text collate "C" not null check (path like '/%'),
    parent          text collate "C" not null,
    type            text not null,
    deleted         boolean not null default false,
    version_id      uuid not null,
    version_number  integer not null,
    kind            text not null check (kind in ('file', 'folder', 'link')),
    mode            integer not null,
    sha256          bytea,
    size            bigint not null,
    line_count      integer,
    content_kind    text not null check (content_kind in ('text', 'json', 'binary')),
    link_target     text,
    -- Of content that the history does not store: its id once it is in the trash, and its identity:
    -- the inode, of a folder with the time of its creation.
    trash_id        uuid,
    inode           bigint,
    -- Inode, size, mtime, ctime and time of the check, times in ns, when the disk last held the head version.
    fingerprint     bigint[],
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    primary key (workspace_id, id)
) with (fillfactor = 80);
create unique index files_live on files (workspace_id, mount, path) where not deleted;
create index files_deleted on files (workspace_id, mount, path) where deleted;
-- Plans are few among many files.
create index files_plans on files (workspace_id, mount, path) where type = 'plan' and not deleted;

create table versions (
    workspace_id    uuid not null,
    id              uuid not null,
    file_id         uuid not null,
    version_number  integer not null,
    change_set_id   uuid not null,
    parent_id       uuid,
    deleted         boolean not null,
    mount           text collate "C" not null,
    path            text collate "C" not null,
    kind            text not null,
    mode            integer not null,
    sha256          bytea,
    size            bigint not null,
    line_count      integer,
    content_kind    text not null,
    link_target     text,
    trash_id        uuid,
    inode           bigint,
    created_at      timestamptz not null default now(),
    primary key (workspace_id, id),
    unique (workspace_id, file_id, version_number),
    foreign key (workspace_id, file_id) references files on delete cascade,
    foreign key (workspace_id, change_set_id) references change_sets,
    -- No garbage collector can delete a blob that a version refers to.
    foreign key (workspace_id, sha256) references blobs
);
create index versions_change_set on versions (workspace_id, change_set_id);
create index versions_blob on versions (workspace_id, sha256) where sha256 is not null;
-- For the latest deletions first: version ids ascend with time.
create index versions_deleted on versions (workspace_id, mount, id) where deleted;

-- Files whose head is committed but may not be on disk yet, and what the disk held before.
create table pending_applies (
    workspace_id     uuid not null,
    file_id          uuid not null,
    base_version_id  uuid,
    base_mount       text collate "C",
    base_path        text collate "C",
    committed_at     timestamptz not null default now(),
    -- Set for a file that was on a disk that is gone: it is written again from the history. Null: a change in progress,
    -- or one that a crash left.
    rebuild_id       uuid,
    primary key (workspace_id, file_id)
);
-- Every write inserts and deletes a row, and every lookup of an unknown path reads the table: vacuum it often.
alter table pending_applies set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The changes of a proposed change set. Once committed they are versions.
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

-- Deleted or overwritten files and folders whose content is not in the history. Each is on the node that has the
-- tree, under its id. The row of an expired one stays, so that undo can report it.
create table trash (
    workspace_id   uuid not null references workspaces on delete cascade,
    id             uuid not null,
    file_id        uuid not null,
    -- The change set that moved it here.
    change_set_id  uuid not null,
    node           text not null,
    mount          text collate "C" not null,
    path           text collate "C" not null,
    kind           text not null check (kind in ('file', 'folder')),
    mode           integer not null,
    size           bigint not null,
    trashed_at     timestamptz not null default clock_timestamp(),
    expires_at     timestamptz not null,
    -- From then on it cannot be restored; it is deleted from disk after that.
    expired_at     timestamptz,
    deleted        boolean not null default false,
    primary key (workspace_id, id)
);
create index trash_file on trash (workspace_id, file_id);
create index trash_kept on trash (workspace_id, trashed_at) where expired_at is null;
create index trash_expiring on trash (node, expires_at) where not deleted;

-- The result of a lookup of one path: the caller's role and the workspace's home, then the file if there is one.
create type path_lookup as (
    role text, root_path text, home_node text, home_epoch bigint, ordinal bigint,
    id uuid, mount text, path text, type text, version_id uuid, version_number integer,
    kind text, mode integer, sha256 bytea, size bigint, line_count integer, content_kind text,
    link_target text, trash_id uuid, inode bigint,
    fingerprint bigint[], created_at timestamptz, updated_at timestamptz,
    pending boolean, base_version_id uuid,
    -- Whether the workspace has any pending file.
    any_pending boolean
);
