-- How often someone was refused by workspaces where they do not belong, since when: so many lines a minute are recorded.
create table outsiders (
    user_id     uuid primary key,
    since       timestamptz not null default now(),
    recorded    integer not null default 0,
    -- What was not recorded; the next line that is says how often.
    unrecorded  bigint not null default 0
);
