-- Runs, the messages of a session, the processes that work on runs, and people's credentials for models.

-- A server process that is alive says so here. What it had in hand is another's when it falls silent.
create table processes (
    id          uuid primary key,
    node        text not null,
    started_at  timestamptz not null default now(),
    beat_at     timestamptz not null default now()
);

-- One answer to one message of a user. Its rows are its log: any process can go on from them.
create table runs (
    workspace_id    uuid not null references workspaces on delete cascade,
    id              uuid not null,
    session_id      uuid not null,
    user_id         uuid not null,
    agent_id        uuid,
    via             text not null,
    -- What the user said. It becomes a message when the run's turn has come.
    prompt          text not null,
    state           text not null check (state in ('queued', 'ready', 'running', 'waiting', 'ended')),
    ending          text,
    -- Raised with every takeover: whoever commits for an older one is refused.
    epoch           bigint not null default 0,
    runner          uuid,
    turns           integer not null default 0,
    input_tokens    bigint not null default 0,
    output_tokens   bigint not null default 0,
    context_tokens  bigint not null default 0,
    -- Time spent working. Waiting for a person does not count.
    active_ms       bigint not null default 0,
    active_since    timestamptz,
    cancelled_by    uuid,
    error           jsonb,
    created_at      timestamptz not null default now(),
    started_at      timestamptz,
    ended_at        timestamptz,
    primary key (workspace_id, id),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);
-- A session has at most one unfinished run; those that are queued have not begun.
create unique index runs_unfinished on runs (workspace_id, session_id) where state in ('ready', 'running', 'waiting');
create index runs_queued on runs (workspace_id, session_id, id) where state = 'queued';
create index runs_due on runs (created_at) where state in ('ready', 'running');
create index runs_session on runs (workspace_id, session_id, id);

create table messages (
    workspace_id  uuid not null,
    session_id    uuid not null,
    position      bigint not null,
    id            uuid not null,
    run_id        uuid,
    role          text not null check (role in ('user', 'assistant', 'summary')),
    content       text not null,
    metadata      jsonb,
    -- The summary that stands for it since the session was compacted. It can still be read by its id.
    summary_id    uuid,
    created_at    timestamptz not null default now(),
    primary key (workspace_id, session_id, position),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);
create unique index messages_id on messages (workspace_id, id);
-- An answer opens the door out of plan mode once.
alter table questions add column used boolean not null default false;
alter table sessions add column last_position bigint not null default 0;

-- Whether a call touched the sandbox's border: counted against its run.
alter table tool_calls add column violation boolean not null default false;

-- A person's own access to a model provider. `sealed` is encrypted with a key that lies outside the database.
create table credentials (
    user_id     uuid not null references users on delete cascade,
    provider    text not null,
    base_url    text,
    sealed      bytea not null,
    key_id      text not null,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    primary key (user_id, provider)
);
