-- The phase of its agent's workflow that a session is in. Null: the agent's first.
alter table sessions add column phase text;
