-- Who answers where nobody else is named, and which model a session chose.
alter table workspaces add column default_agent_id uuid;
-- Null: the agent's own.
alter table sessions add column provider text;
alter table sessions add column model text;
