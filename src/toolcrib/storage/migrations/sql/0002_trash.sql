-- Displaced files that the history does not keep, and what a million file rows need to be looked through quickly.

-- One displaced file or folder. It lies on the node that holds the workspace's tree, under its id; a state in the
-- history whose content is not kept there names that id as its target. Of what is gone the row stays, to say so.
create table trash (
    workspace_id   uuid not null references workspaces on delete cascade,
    id             uuid not null,
    file_id        uuid not null,
    -- The set that displaced it.
    change_set_id  uuid not null,
    node           text not null,
    mount          text collate "C" not null,
    path           text collate "C" not null,
    kind           text not null check (kind in ('file', 'folder')),
    mode           integer not null,
    size           bigint not null,
    displaced_at   timestamptz not null default clock_timestamp(),
    expires_at     timestamptz not null,
    -- Let go of: nobody may bring it back any more. It is removed from disk after that.
    gone_at        timestamptz,
    removed        boolean not null default false,
    primary key (workspace_id, id)
);
create index trash_file on trash (workspace_id, file_id);
create index trash_kept on trash (workspace_id, displaced_at) where gone_at is null;
create index trash_expiring on trash (node, expires_at) where not removed;

-- Plans are few among many files. No column of these indexes is one that an ordinary write changes.
create index files_plans on files (workspace_id, mount, path) where type = 'plan' and not deleted;

-- The latest deletions first. Version ids ascend with time.
create index versions_deleted on versions (workspace_id, mount, id) where deleted;

-- Never written: calls are counted where they are kept.
alter table usage drop column calls;
