-- How far agents may be trusted: a ceiling of the workspace, and whether an owner said what a session trusts.

alter table workspaces add column max_trust text check (max_trust in ('supervised', 'guided', 'autonomous'));
-- Only an owner's word lets a session trust an agent further than the agent's own rules do.
alter table sessions add column trust_by_owner boolean not null default false;
update sessions s set trust_by_owner = true
where s.trust is not null and exists (
    select from members m where m.workspace_id = s.workspace_id and m.user_id = s.created_by and m.role = 'owner'
);
