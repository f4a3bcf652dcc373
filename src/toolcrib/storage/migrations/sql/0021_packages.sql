-- Agent packages: what @pkg shows in a workspace, and the workflows that sessions run.

create table packages (
    -- One for each workspace.
    workspace_id  uuid primary key references workspaces on delete cascade,
    name          text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
    version       text not null check (length(version) between 1 and 64),
    -- Of the archive.
    sha256        bytea not null,
    files         integer not null,
    bytes         bigint not null,
    -- The names that its agents have in the workspace.
    agents        text[] not null default '{}',
    -- What a run begins with, and the rules that it follows; null: it has no workflow.
    document      bytea,
    workflow      jsonb,
    installed_by  uuid not null,
    installed_at  timestamptz not null default now()
);
-- The package that brought it; null: an owner wrote it.
alter table agents add column package text;
-- Of which package it is a run, and the rules as they were when it began.
alter table sessions add column package text;
alter table sessions add column workflow jsonb;
