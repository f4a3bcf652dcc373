-- Processes that a call left running on the live tree, and what became of them. Whoever finds that the tree changed
-- while one ran knows from its row who answers for it.

create table background_processes (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    -- Who started it, and so is the author of what it does.
    call_id       uuid not null,
    user_id       uuid not null,
    agent_id      uuid,
    session_id    uuid,
    run_id        uuid,
    command       text not null,
    isolation     text not null,
    -- The node whose tree it changes, and the server process that it ends with.
    node          text not null,
    process       uuid not null,
    -- By the clock that dates the files of that node. Without an end it runs, or its server died.
    began_ns      bigint not null,
    ended_ns      bigint,
    exit_code     integer,
    -- Why it was ended, if not by itself.
    stopped       text,
    -- Someone who cannot reach it wants it to end.
    unwanted      boolean not null default false,
    primary key (workspace_id, id)
);
create index background_processes_running on background_processes (process) where ended_ns is null;
