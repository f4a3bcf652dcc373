-- Where clients that keep the conversation themselves left off: such a client names no session, it repeats what was said.

create table bookmarks (
    workspace_id  uuid not null,
    session_id    uuid not null,
    -- Of who asks, of whom, and of all that was said up to the last answer. What was said is not kept here.
    digest        bytea not null,
    -- The number of the last event that the client was told of.
    told          bigint not null,
    primary key (workspace_id, session_id),
    foreign key (workspace_id, session_id) references sessions on delete cascade
);
create index bookmarks_digest on bookmarks (workspace_id, digest);
