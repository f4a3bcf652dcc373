-- Calls that wait for a person, and the grants that approvals create.

create table paused_calls (
    workspace_id          uuid not null references workspaces on delete cascade,
    id                    uuid not null,
    kind                  text not null check (kind in ('approval', 'question')),
    call_id               uuid not null,
    session_id            uuid,
    run_id                uuid,
    -- The user on whose behalf the agent calls.
    user_id               uuid not null,
    agent_id              uuid,
    via                   text not null,
    tool                  text not null,
    state                 text not null default 'pending'
                          check (state in ('pending', 'approved', 'rejected', 'stale', 'answered', 'expired',
                                           'cancelled')),
    created_at            timestamptz not null default now(),
    expires_at            timestamptz not null,

    -- An approval. `arguments` is exactly what will be executed, as ASCII JSON; deleted when it is. `input` is what
    -- people see.
    arguments             text,
    input                 jsonb,
    arguments_sha256      bytea,
    -- What would happen to each file, if known; the change set, and the result that the call will have.
    changes               jsonb,
    change_set_id         uuid,
    planned_result        jsonb,
    effects               jsonb,
    rule                  text,
    reason                text,
    isolation             text,
    suggested_rule        jsonb,
    other_rules           jsonb,
    replaces              uuid,

    -- A question. `answer_used_at`: the answer has ended plan mode, which it can do once.
    questions             jsonb,
    answers               jsonb,
    answered_with_button  text[] not null default '{}',
    answer_used_at        timestamptz,

    -- The decision or the answer.
    decided_by            uuid,
    decided_via           text,
    decided_at            timestamptz,
    grant_scope           text check (grant_scope in ('once', 'session', 'always')),
    rejection_reason      text,
    -- What the person changed in the proposed change set before approving it, by file.
    edits                 jsonb not null default '[]',

    -- One process at a time executes an approved call. Another may take over the claim of a dead one. `queue_entry` is
    -- the number of its last entry in the durable queue.
    claimed_by            uuid,
    claimed_at            timestamptz,
    attempts              integer not null default 0,
    queue_entry           integer not null default 0,
    resumed_at            timestamptz,

    primary key (workspace_id, id),
    foreign key (workspace_id, change_set_id) references change_sets,
    check (num_nonnulls(input, arguments_sha256, changes, effects, rule, reason, suggested_rule)
           = case kind when 'approval' then 7 else 0 end),
    check ((kind = 'question') = (questions is not null)),
    check (kind = 'approval' or state not in ('approved', 'rejected', 'stale')),
    check (kind = 'question' or state <> 'answered')
);
-- A call waits for one person's decision at a time, and asks its questions once.
create unique index paused_calls_pending_call on paused_calls (workspace_id, call_id) where state = 'pending';
create unique index paused_calls_question on paused_calls (workspace_id, call_id) where kind = 'question';
create index paused_calls_call on paused_calls (workspace_id, call_id, created_at);
create index paused_calls_pending on paused_calls (workspace_id, id) where state = 'pending';
create index paused_calls_expiring on paused_calls (expires_at) where state = 'pending';
create index paused_calls_due on paused_calls (workspace_id) where state in ('approved', 'stale') and resumed_at is null;
create index paused_calls_ignored_folders on paused_calls (workspace_id, session_id) where effects ? 'ignored_folders';

-- Rules that approvals create: an agent may make such calls again, in one session or until the grant is revoked.
create table grants (
    workspace_id  uuid not null references workspaces on delete cascade,
    id            uuid not null,
    agent_id      uuid not null,
    session_id    uuid,
    tools         text[] not null,
    paths         text[],
    commands      text[],
    hosts         text[],
    arguments     jsonb,
    access        text[],
    pause_id      uuid not null,
    created_by    uuid not null,
    created_at    timestamptz not null default now(),
    revoked_by    uuid,
    revoked_at    timestamptz,
    primary key (workspace_id, id)
);
create index grants_agent on grants (workspace_id, agent_id) where revoked_at is null;
