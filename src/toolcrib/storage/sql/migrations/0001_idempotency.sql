-- Requests with an `Idempotency-Key`, for a day: a retry gets the answer of the first attempt.

create table idempotency_keys (
    user_id       uuid not null references users on delete cascade,
    -- The API key that was used, or the user who is logged in: what one may do, the other may not.
    caller_id     uuid not null,
    key_hash      bytea not null,
    -- Of the method, the address and the body, with a secret of the server.
    request_hash  bytea not null,
    -- The id of what the request creates. A retry gives it the same one, and so finds it.
    effect_id     uuid not null,
    -- Increased when another attempt goes on: the one before can commit nothing any more.
    attempt       integer not null default 1,
    -- The process that answers the request; null if it gave up.
    process_id    uuid,
    -- `committed`: something of the effect is in the database, and the answer is not here.
    state         text not null default 'running' check (state in ('running', 'committed', 'done')),
    -- Encrypted. Null if it is too large, or has a secret.
    answer        bytea,
    created_at    timestamptz not null default now(),
    claimed_at    timestamptz not null default now(),
    primary key (user_id, caller_id, key_hash)
);
create index idempotency_keys_created on idempotency_keys (created_at);
