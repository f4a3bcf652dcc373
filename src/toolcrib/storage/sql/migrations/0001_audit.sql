-- The audit log.

create table audit_records (
    position      bigint generated always as identity primary key,
    id            uuid not null,
    workspace_id  uuid not null,
    created_at    timestamptz not null,
    user_id       uuid not null,
    agent_id      uuid,
    session_id    uuid,
    run_id        uuid,
    call_id       uuid not null,
    via           text not null,
    tool          text not null,
    decision      text not null,
    rule          text not null,
    decided_by    uuid,
    arguments     jsonb not null,
    outcome       text not null,
    error_code    text,
    -- [{path, before, after}] for every file that the call changed, with hashes in hex.
    files         jsonb not null default '[]',
    -- [{host, denied_reason}] for every host that the call contacted or tried to.
    hosts         jsonb not null default '[]',
    isolation     text,
    duration_us   bigint not null
);
create index audit_records_workspace on audit_records (workspace_id, position);

-- Each seal closes a batch: `mac` is a keyed hash over the previous seal and all records of the batch.
create table audit_seals (
    number         bigint primary key,
    positions      int8multirange not null,
    -- Positions up to the last one that have no record yet. A transaction that commits late may still fill them.
    gaps           int8multirange not null,
    -- The highest position that this seal or an earlier one covers.
    last_position  bigint not null,
    record_count   integer not null,
    mac            bytea not null,
    sealed_at      timestamptz not null default now()
);
create index audit_seals_time on audit_seals (sealed_at);

-- Limits how many denied calls of a user who is not a member are recorded in a minute.
create table outsiders (
    user_id     uuid primary key,
    since       timestamptz not null default now(),
    recorded    integer not null default 0,
    -- Calls over the limit. The next record has their number.
    unrecorded  bigint not null default 0
);
