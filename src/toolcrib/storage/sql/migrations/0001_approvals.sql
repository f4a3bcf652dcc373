-- Approvals and questions that calls wait for, and the grants that approvals create.

create table approvals (
    workspace_id      uuid not null references workspaces on delete cascade,
    id                uuid not null,
    call_id           uuid not null,
    session_id        uuid,
    run_id            uuid,
    -- The user on whose behalf the agent calls.
    user_id           uuid not null,
    agent_id          uuid,
    via               text not null,
    tool              text not null,
    -- Exactly what will be executed, as ASCII JSON; deleted when it is. `shown` is what people see.
    arguments         text,
    shown             jsonb not null,
    arguments_sha256  bytea not null,
    -- What would happen to each file, if known; the change set, and the result that the call will have.
    changes           jsonb not null default '[]',
    change_set_id     uuid,
    result            jsonb,
    effects           jsonb not null,
    rule              text not null,
    reason            text not null,
    isolation         text,
    offered           jsonb not null,
    state             text not null default 'open'
                      check (state in ('open', 'allowed', 'denied', 'expired', 'stale', 'withdrawn')),
    scope             text check (scope in ('once', 'session', 'always')),
    decided_by        uuid,
    decided_via       text,
    decided_at        timestamptz,
    denial            text,
    replaces          uuid,
    created_at        timestamptz not null default now(),
    expires_at        timestamptz not null,
    -- One node at a time executes an approved call. Another may take over a claim that is too old.
    claimed_by        text,
    claimed_at        timestamptz,
    attempts          integer not null default 0,
    carried_at        timestamptz,
    primary key (workspace_id, id),
    foreign key (workspace_id, change_set_id) references change_sets
);
-- A call waits for one decision at a time.
create unique index approvals_call_open on approvals (workspace_id, call_id) where state = 'open';
create index approvals_call on approvals (workspace_id, call_id, created_at);
create index approvals_open on approvals (workspace_id, id) where state = 'open';
create index approvals_expiring on approvals (expires_at) where state = 'open';
create index approvals_due on approvals (decided_at) where state in ('allowed', 'stale') and carried_at is null;

create table questions (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    call_id       uuid not null,
    session_id    uuid,
    run_id        uuid,
    user_id       uuid not null,
    agent_id      uuid,
    via           text not null,
    items         jsonb not null,
    state         text not null default 'open' check (state in ('open', 'answered', 'expired', 'withdrawn')),
    answers       jsonb,
    by_button     text[] not null default '{}',
    answered_by   uuid,
    answered_via  text,
    answered_at   timestamptz,
    -- Whether the answer has ended plan mode, which it can do once.
    used          boolean not null default false,
    created_at    timestamptz not null default now(),
    expires_at    timestamptz not null,
    primary key (workspace_id, id)
);
create unique index questions_call on questions (workspace_id, call_id);
create index questions_open on questions (workspace_id, id) where state = 'open';
create index questions_expiring on questions (expires_at) where state = 'open';

-- Rules that approvals create: an agent may make such calls again, in one session or until the grant is revoked.
create table grants (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    agent_id      uuid not null,
    session_id    uuid,
    tool          text not null,
    paths         text[],
    commands      text[],
    approval_id   uuid not null,
    created_by    uuid not null,
    created_at    timestamptz not null default now(),
    revoked_by    uuid,
    revoked_at    timestamptz,
    primary key (workspace_id, id)
);
create index grants_agent on grants (workspace_id, agent_id) where revoked_at is null;
