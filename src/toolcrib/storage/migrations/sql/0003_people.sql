-- Approvals, the grants they leave behind, and questions. What waits for a person costs a row.

-- A call is a row from the moment it waits or runs in a session: who runs it, and whether it may be done again.
alter table tool_calls add column node text;
alter table tool_calls add column repeatable boolean not null default true;
create index tool_calls_running on tool_calls (node) where state = 'running';

create table approvals (
    workspace_id      uuid not null references workspaces on delete cascade,
    id                uuid not null,
    call_id           uuid not null,
    session_id        uuid,
    run_id            uuid,
    -- Who answers for the agent that calls.
    user_id           uuid not null,
    agent_id          uuid,
    via               text not null,
    tool              text not null,
    -- Exactly what will be executed, as ASCII JSON; let go of when it is. `shown` is for people's eyes.
    arguments         text,
    shown             jsonb not null,
    arguments_sha256  bytea not null,
    -- What would become of each file, where it is known; the very set, and what the call will then answer.
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
    -- What was allowed is carried out by one node at a time; a claim that is too old is another's to take.
    claimed_by        text,
    claimed_at        timestamptz,
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

-- A rule that a decision left behind: an agent may do the like again, in one session or until it is revoked.
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
    created_at    timestamptz not null default now(),
    expires_at    timestamptz not null,
    primary key (workspace_id, id)
);
create unique index questions_call on questions (workspace_id, call_id);
create index questions_open on questions (workspace_id, id) where state = 'open';
create index questions_expiring on questions (expires_at) where state = 'open';
