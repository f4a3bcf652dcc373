-- Workspaces that their owners have deleted, until nothing of them is left: any process goes on after any crash.

create table deleted_workspaces (
    workspace_id  uuid not null,
    -- Whose disk holds its trees. Empty: the rows, which any node removes.
    node          text not null,
    deleted_by    uuid not null,
    deleted_at    timestamptz not null default now(),
    -- The process that is at it, if it lives.
    claimed_by    text,
    -- All was gone. What a call that was under way may still leave is looked for once more before this row goes.
    finished_at   timestamptz,
    primary key (workspace_id, node)
);
