-- Who may do what. The server's role owns nothing and cannot bypass the policies; the book and the history are
-- insert-only for it. The system role (recovery, sealing, collecting) sees every workspace.

grant usage on schema toolcrib to toolcrib_app, toolcrib_system;
revoke all on all tables in schema toolcrib from public, toolcrib_app, toolcrib_system;
revoke execute on all functions in schema toolcrib from public;
grant execute on all functions in schema toolcrib to toolcrib_app, toolcrib_system;

grant select, insert, update, delete on
    workspaces, members, agents, api_keys, pending, proposed_changes, sessions, trash, mcp_servers, bookmarks,
    background_processes
    to toolcrib_app;
grant select, insert, update on
    users, refresh_tokens, change_sets, files, tool_calls, usage, approvals, grants, questions, runs, messages
    to toolcrib_app;
grant select, insert, update, delete on credentials to toolcrib_app;
grant select, insert on blobs, versions, events, audit to toolcrib_app;
grant select, insert, delete on tickets to toolcrib_app;

grant select, insert, update, delete on all tables in schema toolcrib to toolcrib_system;
revoke update, delete on audit, seals from toolcrib_system;
grant select on alembic_version to toolcrib_app;

do $$
declare
    v_table  text;
begin
    foreach v_table in array array[
        'users', 'refresh_tokens', 'workspaces', 'members', 'agents', 'api_keys', 'blobs', 'change_sets', 'files', 'trash',
        'versions', 'pending', 'proposed_changes', 'sessions', 'events', 'tool_calls', 'audit', 'seals', 'usage',
        'approvals', 'grants', 'questions', 'runs', 'messages', 'processes', 'credentials', 'mcp_servers',
        'bookmarks', 'background_processes'
    ] loop
        execute format('alter table toolcrib.%I enable row level security', v_table);
        execute format('drop policy if exists system on toolcrib.%I', v_table);
        execute format('create policy system on toolcrib.%I to toolcrib_system using (true) with check (true)', v_table);
    end loop;
    foreach v_table in array array[
        'agents', 'blobs', 'change_sets', 'files', 'versions', 'pending', 'proposed_changes', 'sessions', 'events', 'trash',
        'tool_calls', 'usage', 'approvals', 'grants', 'questions', 'runs', 'messages', 'mcp_servers', 'bookmarks',
        'background_processes'
    ] loop
        execute format('drop policy if exists tenant on toolcrib.%I', v_table);
        execute format('create policy tenant on toolcrib.%I to toolcrib_app
                        using (workspace_id = toolcrib.tenant()) with check (workspace_id = toolcrib.tenant())',
                       v_table);
    end loop;
end
$$;

-- A person's own.
drop policy if exists self on users;
create policy self on users to toolcrib_app using (id = acting_user()) with check (id = acting_user());
drop policy if exists fellow on users;
create policy fellow on users for select to toolcrib_app
    using (id in (select m.user_id from members m where m.workspace_id = tenant()));
drop policy if exists self on refresh_tokens;
create policy self on refresh_tokens to toolcrib_app
    using (user_id = acting_user()) with check (user_id = acting_user());
drop policy if exists self on credentials;
create policy self on credentials to toolcrib_app using (user_id = acting_user()) with check (user_id = acting_user());
drop policy if exists self on api_keys;
create policy self on api_keys to toolcrib_app
    using (user_id = acting_user())
    with check (user_id = acting_user() and (workspace_id is null or workspace_id = tenant()));

-- A workspace and its members are seen from inside, and in the list of one's own.
drop policy if exists tenant on workspaces;
create policy tenant on workspaces to toolcrib_app
    using (id = tenant() or id in (select own_workspaces())) with check (id = tenant() or created_by = acting_user());
drop policy if exists tenant on members;
create policy tenant on members to toolcrib_app
    using (workspace_id = tenant() or user_id = acting_user())
    with check (workspace_id = tenant());
drop policy if exists founder on members;
create policy founder on members for insert to toolcrib_app
    with check (user_id = acting_user() and role = 'owner' and not toolcrib.has_members(workspace_id));

-- The book: whoever calls is written down, also in a workspace where they do not belong; read only from inside.
drop policy if exists write_down on audit;
create policy write_down on audit for insert to toolcrib_app with check (true);
drop policy if exists tenant on audit;
create policy tenant on audit for select to toolcrib_app using (workspace_id = tenant());

-- Tickets: made from inside a workspace for oneself; spent by `redeem_ticket` before anyone is known.
alter table tickets enable row level security;
drop policy if exists system on tickets;
create policy system on tickets to toolcrib_system using (true) with check (true);
drop policy if exists self on tickets;
create policy self on tickets to toolcrib_app
    using (workspace_id = tenant() and user_id = acting_user())
    with check (workspace_id = tenant() and user_id = acting_user());
