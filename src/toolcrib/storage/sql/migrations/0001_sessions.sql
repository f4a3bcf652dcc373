-- Sessions, their messages and events, runs, tool calls, and the processes that execute them.

create table sessions (
    workspace_id           uuid not null references workspaces on delete cascade,
    id                     uuid not null,
    title                  text,
    agent_id               uuid,
    -- The model. Null: the agent's.
    provider               text,
    model                  text,
    mode                   text not null default 'build' check (mode in ('plan', 'build')),
    -- Null: the agent's. Only an owner can set it higher than that.
    trust                  text check (trust in ('supervised', 'guided', 'review', 'autonomous')),
    trust_by_owner         boolean not null default false,
    -- Of the agent's workflow. Null: the first phase.
    phase                  text,
    -- Where its commands start, relative to the project. Empty: its root.
    directory              text not null default '',
    -- The package that the session runs, and its workflow as it was when the session began.
    package                text,
    workflow               jsonb,
    -- The number of the newest durable event, and the position of the newest message.
    last_seq               bigint not null default 0,
    last_message_position  bigint not null default 0,
    -- Size of the messages as text, so that a listing need not read them.
    text_bytes             bigint not null default 0,
    text_lines             bigint not null default 0,
    -- What people decided in reviews since the last message. The next message tells the model.
    review_note            text,
    -- What the model is told of the workspace: surroundings, skills, instructions of the project. Null: nothing yet.
    prompt_context         jsonb,
    -- A session of a child run: the run that started it, the session where the chain began, and how deep it is there.
    parent_session_id      uuid,
    parent_run_id          uuid,
    root_session_id        uuid,
    depth                  smallint not null default 0,
    -- How the call that started the child run narrows its permissions: `tools` and `trust`.
    narrowed_to            jsonb,
    -- The session that this one continues from a message. Either may be deleted meanwhile.
    forked_from_session_id  uuid,
    forked_from_message_id  uuid,
    created_by             uuid not null,
    created_at             timestamptz not null default now(),
    updated_at             timestamptz not null default now(),
    primary key (workspace_id, id),
    foreign key (workspace_id, parent_session_id) references sessions on delete cascade,
    check (num_nonnulls(parent_session_id, parent_run_id, root_session_id) in (0, 3)),
    check (num_nonnulls(forked_from_session_id, forked_from_message_id) in (0, 2))
);
-- The words of titles and messages, each with its workspace as another word: a search reads nothing of other workspaces.
create index sessions_words on sessions using gin ((
    array_to_tsvector(array[workspace_id::text])
    || to_tsvector('simple', regexp_replace(title, '[[:punct:]]+', ' ', 'g'))));
create index sessions_parent on sessions (workspace_id, parent_session_id) where parent_session_id is not null;
create index sessions_root on sessions (workspace_id, root_session_id) where root_session_id is not null;

create table messages (
    workspace_id  uuid not null,
    session_id    uuid not null,
    position      bigint not null,
    id            uuid not null,
    run_id        uuid,
    role          text not null check (role in ('user', 'assistant', 'summary')),
    content       text not null,
    metadata      jsonb,
    -- The summary that replaces it since the session was compacted. The message stays readable by its id.
    summary_id    uuid,
    created_at    timestamptz not null default now(),
    primary key (workspace_id, session_id, position),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);
create unique index messages_id on messages (workspace_id, id);
create index messages_words on messages using gin ((
    array_to_tsvector(array[workspace_id::text])
    || to_tsvector('simple', regexp_replace(left(content, 20000), '[[:punct:]]+', ' ', 'g'))));

create table events (
    workspace_id  uuid not null,
    session_id    uuid not null,
    seq           bigint not null,
    type          text not null,
    payload       jsonb not null,
    created_at    timestamptz not null default now(),
    primary key (workspace_id, session_id, seq),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);

-- For clients that keep the conversation themselves and name no session: they repeat it, and its digest finds the session.
create table conversation_cursors (
    workspace_id  uuid not null,
    session_id    uuid not null,
    -- Of the user, the agent and the conversation up to the last answer.
    digest        bytea not null,
    -- The number of the last event that the client received.
    last_seq      bigint not null,
    primary key (workspace_id, session_id),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);
create index conversation_cursors_digest on conversation_cursors (workspace_id, digest);

-- One answer to one message of a user. The rows of a run are its log: any process can continue from them.
create table runs (
    workspace_id    uuid not null references workspaces on delete cascade,
    id              uuid not null,
    session_id      uuid not null,
    user_id         uuid not null,
    agent_id        uuid,
    via             text not null,
    -- The user's text. It becomes a message when the run starts.
    prompt          text not null,
    -- Files of the workspace that the message brings: the path, and the call that read it.
    attachments     jsonb,
    -- It has no message: it only replaces the older messages of its session by a summary.
    compacts        boolean not null default false,
    state           text not null check (state in ('queued', 'ready', 'running', 'waiting', 'ended')),
    end_reason      text,
    -- A person stopped the session before this queued run started: it starts only when somebody releases it.
    held            boolean not null default false,
    -- Lower ones start first.
    priority        smallint not null default 100 check (priority between 0 and 1000),
    -- Incremented by every takeover. A commit with an older epoch fails.
    epoch           bigint not null default 0,
    worker_id       uuid,
    -- Attempts at the tool calls of the current turn, counted before they execute.
    attempts        integer not null default 0,
    -- Takeovers from processes that died, since the run last made progress.
    takeovers       integer not null default 0,
    turns           integer not null default 0,
    input_tokens    bigint not null default 0,
    output_tokens   bigint not null default 0,
    context_tokens  bigint not null default 0,
    -- In US dollars, at the prices of the time. Turns without a known price are counted instead.
    cost            numeric(20, 10) not null default 0,
    unpriced_turns  integer not null default 0,
    -- Put aside, because the provider limits requests: nobody takes a ready run before this time.
    not_before      timestamptz,
    -- How often it was put aside since the model last answered, and for how long in total.
    provider_waits  integer not null default 0,
    provider_wait_ms  bigint not null default 0,
    -- Put aside, because its credential has no room for another request: nobody takes it before it has a slot.
    awaits_slot     boolean not null default false,
    -- Time spent working, without the time spent waiting for a person or put aside.
    active_ms       bigint not null default 0,
    active_since    timestamptz,
    cancelled_by    uuid,
    error           jsonb,
    -- A child run: the run and the call that wait for its end, and how long that run had worked when this one began.
    parent_run_id     uuid,
    parent_call_id    uuid,
    parent_active_ms  bigint,
    -- What was left of the parent's turns and time. Null: only the agent's own limits apply.
    max_turns         integer,
    max_active_ms     bigint,
    -- Turns of this run's child runs that have ended. They count against its own.
    child_turns     integer not null default 0,
    -- A waiting run waits for child runs only, and for no person.
    waits_for_child boolean not null default false,
    -- What all its child runs have used, counted with each of their turns.
    child_tokens    bigint not null default 0,
    child_cost      numeric(20, 10) not null default 0,
    child_unpriced  integer not null default 0,
    created_at      timestamptz not null default now(),
    started_at      timestamptz,
    ended_at        timestamptz,
    primary key (workspace_id, id),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);
-- A session has at most one started run that has not ended; the others are queued.
create unique index runs_unfinished on runs (workspace_id, session_id) where state in ('ready', 'running', 'waiting');
create index runs_queued on runs (workspace_id, priority, id) where state = 'queued' and not held;
create index runs_at_work on runs (workspace_id) where state in ('ready', 'running');
create index runs_ready on runs (workspace_id) where state = 'ready';
create index runs_cancelled on runs (worker_id) where state in ('ready', 'running') and cancelled_by is not null;
create index runs_session on runs (workspace_id, session_id, id);
-- A call starts one child run, however often it is executed.
create unique index runs_parent_call on runs (workspace_id, parent_call_id) where parent_call_id is not null;
create index runs_parent on runs (workspace_id, parent_run_id) where parent_run_id is not null;

-- What models have used per day (UTC), added up in the transaction that stores it: of the whole workspace, and by agent, by
-- session with the sessions of its child runs, and by model. Budgets and reports read these rows instead of all runs.
-- They outlive the sessions and agents that they count.
create table model_usage (
    workspace_id    uuid not null references workspaces on delete cascade,
    kind            text not null check (kind in ('workspace', 'agent', 'session', 'model')),
    -- The id of the agent or the session, or `provider/model`. Empty for the workspace.
    key             text not null,
    day             date not null,
    -- Counted when they first use a model.
    runs            integer not null,
    input_tokens    bigint not null,
    output_tokens   bigint not null,
    cost            numeric(20, 10) not null,
    unpriced_turns  integer not null,
    primary key (workspace_id, kind, key, day)
);
create index model_usage_day on model_usage (workspace_id, kind, day);

-- Messages that are sent by the clock: each firing creates a session and a run on behalf of the user. Its next firing is in
-- the durable queue (functions/schedules.sql).
create table schedules (
    workspace_id     uuid not null references workspaces on delete cascade,
    id               uuid not null,
    name             text not null,
    -- Five fields, read in the time zone.
    cron             text not null,
    time_zone        text not null,
    agent_id         uuid not null,
    user_id          uuid not null,
    message          text not null,
    enabled          boolean not null default true,
    -- A whole minute. An entry of the queue for another time does nothing.
    next_at          timestamptz,
    last_at          timestamptz,
    last_session_id  uuid,
    last_run_id      uuid,
    -- Why the last firing failed. A schedule whose user or agent is gone is also disabled.
    last_error       text,
    created_at       timestamptz not null default now(),
    primary key (workspace_id, id),
    check (enabled = (next_at is not null))
);
create unique index schedules_name on schedules (workspace_id, name);

-- Calls that change something, belong to a session or a run, or have a truncated result.
create table tool_calls (
    workspace_id   uuid not null,
    id             uuid not null,
    session_id     uuid,
    run_id         uuid,
    -- The epoch of the run when it made the call.
    run_epoch      bigint,
    user_id        uuid not null,
    agent_id       uuid,
    tool           text not null,
    arguments      jsonb not null,
    state          text not null check (state in ('running', 'paused', 'done', 'denied', 'unknown')),
    -- The process that executes it.
    process_id     uuid,
    -- Whether it may be executed again after a crash.
    idempotent     boolean not null default true,
    -- Whether it violated the sandbox, which counts against its run.
    is_violation   boolean not null default false,
    result         jsonb,
    error          jsonb,
    change_set_id  uuid,
    started_at     timestamptz not null default now(),
    ended_at       timestamptz,
    primary key (workspace_id, id)
);
create index tool_calls_session on tool_calls (workspace_id, session_id) where session_id is not null;
create index tool_calls_run on tool_calls (workspace_id, run_id) where run_id is not null;
create index tool_calls_running on tool_calls (process_id) where state = 'running';
-- Their results are the files that messages bring, which count for the workspace's quota.
create index tool_calls_attachments on tool_calls (workspace_id) where tool = 'attach';

-- The files of a session's agent that a person has reviewed, each up to a version. Later versions wait for a review.
create table reviewed_files (
    workspace_id    uuid not null,
    session_id      uuid not null,
    file_id         uuid not null,
    version_number  integer not null,
    decision        text not null check (decision in ('kept', 'reverted')),
    decided_by      uuid not null,
    decided_at      timestamptz not null default now(),
    primary key (workspace_id, session_id, file_id),
    foreign key (workspace_id, session_id) references sessions on delete cascade,
    foreign key (workspace_id, file_id) references files on delete cascade
);

-- Processes that a call left running on the live tree, and how they ended. They identify who changed a file meanwhile.
create table background_processes (
    workspace_id    uuid not null references workspaces on delete cascade,
    id              uuid not null,
    -- Who started it, and so is the author of its changes.
    call_id         uuid not null,
    user_id         uuid not null,
    agent_id        uuid,
    session_id      uuid,
    run_id          uuid,
    command         text not null,
    isolation       text not null,
    -- The node whose tree it changes, and the server process that it ends with.
    node            text not null,
    process_id      uuid not null,
    -- By the clock that dates the files of that node. Without an end it runs, or its server died.
    started_ns      bigint not null,
    ended_ns        bigint,
    exit_code       integer,
    -- Why it was stopped. Null: it ended by itself.
    stop_reason     text,
    -- Set by a process that cannot reach it: its own server must stop it.
    stop_requested  boolean not null default false,
    primary key (workspace_id, id)
);
create index background_processes_running on background_processes (process_id) where ended_ns is null;

-- Credentials with limits: how many model requests may run at once, and how many may start within a minute. The row is
-- locked to give out slots. Which credential it is: the user's for the provider.
create table model_lanes (
    user_id     uuid not null references users on delete cascade,
    provider    text not null,
    -- The limits that hold, as the last request found them. Null: none.
    at_once     integer,
    per_minute  integer,
    -- Slots that are given out, and the place of the last one.
    held        integer not null default 0,
    place       bigint not null default 0,
    primary key (user_id, provider)
);

-- Runs that have a slot for a model request, and those that wait for one, by place. A workspace's next place comes after
-- its last one, and never before the place of the lane: so workspaces take turns.
create table model_slots (
    workspace_id   uuid not null references workspaces on delete cascade,
    run_id         uuid not null,
    user_id        uuid not null,
    provider       text not null,
    place          bigint not null,
    waiting_since  timestamptz not null default clock_timestamp(),
    -- Null: it waits.
    granted_at     timestamptz,
    -- Whose request it is. Null: the run has not been taken since.
    process_id     uuid,
    primary key (workspace_id, run_id, user_id, provider),
    foreign key (user_id, provider) references model_lanes on delete cascade
);
create index model_slots_lane on model_slots (user_id, provider, workspace_id, place);
create index model_slots_waiting on model_slots (user_id, provider, place, waiting_since) where granted_at is null;
create index model_slots_unclaimed on model_slots (granted_at) where granted_at is not null and process_id is null;
create index model_slots_process on model_slots (process_id) where process_id is not null;

-- When requests started, for one minute.
create table model_starts (
    user_id     uuid not null,
    provider    text not null,
    run_id      uuid not null,
    started_at  timestamptz not null default clock_timestamp(),
    foreign key (user_id, provider) references model_lanes on delete cascade
);
create index model_starts_time on model_starts (user_id, provider, started_at);

-- Nodes: each has a disk with the trees of its workspaces, and one or more server processes.
create table nodes (
    name         text primary key,
    -- Of its data directory. Null: the disk of a local server, which is nobody else's to replace.
    disk_id      uuid,
    -- The last heartbeat of one of its processes. When a node is silent, others become the home of its workspaces.
    seen_at      timestamptz not null default now(),
    -- It gives its workspaces to other nodes, and gets no new ones.
    is_draining  boolean not null default false,
    -- The URL of its internal listener, to which other nodes forward calls. Null: it has none.
    address      text
);

-- Server processes and their heartbeats. When one stops, others take over its work.
create table server_processes (
    id            uuid primary key,
    node          text not null,
    started_at    timestamptz not null default now(),
    heartbeat_at  timestamptz not null default now()
);
