-- Privileges and row-level security policies. The app role owns nothing and cannot bypass the policies; for it the audit
-- log and the history are insert-only. The system role (crash recovery, sealing, garbage collection) sees every
-- workspace. The definer role owns the SECURITY DEFINER functions. It cannot log in, and has only the privileges that
-- those functions need.

grant usage on schema toolcrib to toolcrib_app, toolcrib_system, toolcrib_definer;
revoke all on all tables in schema toolcrib from public, toolcrib_app, toolcrib_system, toolcrib_definer;
revoke execute on all functions in schema toolcrib from public;
grant execute on all functions in schema toolcrib to toolcrib_app, toolcrib_system;

grant select, insert, update, delete on
    workspaces, members, agents, api_keys, pending_applies, proposed_changes, sessions, trash, mcp_servers,
    conversation_cursors, background_processes, packages, schedules
    to toolcrib_app;
grant select, insert, update on
    refresh_tokens, change_sets, files, tool_calls, usage_counters, paused_calls, grants, runs, messages,
    reviewed_files
    to toolcrib_app;
grant select, insert, update, delete on provider_credentials to toolcrib_app;
grant select, insert on blobs, versions, events to toolcrib_app;
-- Not `is_administrator` nor `disabled_at`: the system role sets them.
grant select, insert (id, email, full_name, password_hash),
    update (email, full_name, password_hash, token_version, logins_ended_at, reset_hash, reset_expires_at)
    on users to toolcrib_app;
grant select on audit_records, model_slots, model_usage to toolcrib_app;
grant select, insert, delete on connection_tickets to toolcrib_app;
grant select, insert on deleted_workspaces to toolcrib_app;
grant select, insert, update (revoked_at) on invitations to toolcrib_app;

grant select, insert, update, delete on all tables in schema toolcrib to toolcrib_system;
revoke update, delete on audit_records, audit_seals from toolcrib_system;
revoke insert on audit_records from toolcrib_system;
grant select on alembic_version to toolcrib_app;

grant select on users, members, agents, api_keys, grants to toolcrib_definer;
grant select (id, max_trust, home_node, home_epoch) on workspaces to toolcrib_definer;
grant select (workspace_id, id, session_id, state, held) on runs to toolcrib_definer;
grant select (workspace_id, state, resumed_at) on paused_calls to toolcrib_definer;
grant update (is_administrator) on users to toolcrib_definer;
grant select (workspace_id, id, title, created_at) on sessions to toolcrib_definer;
grant select (workspace_id, session_id, id, role, content, created_at) on messages to toolcrib_definer;
grant select, update (revoked_at) on refresh_tokens to toolcrib_definer;
grant select, update (fingerprint) on files to toolcrib_definer;
grant select, delete on pending_applies, connection_tickets to toolcrib_definer;
grant select, update (accepted_at, accepted_by) on invitations to toolcrib_definer;
grant insert on audit_records to toolcrib_definer;
grant select, insert, update on outsiders to toolcrib_definer;
grant select, insert, update, delete on idempotency_keys to toolcrib_definer;
grant select (id, heartbeat_at) on server_processes to toolcrib_definer;
grant execute on function current_user_id(), current_workspace(), excerpt(text, text), agent_grants(uuid, uuid), admin_view(text, jsonb),
    live_processes(double precision), process_is_alive(uuid, double precision) to toolcrib_definer;

do $$
declare
    v_table  text;
begin
    foreach v_table in array array[
        'users', 'refresh_tokens', 'workspaces', 'members', 'agents', 'api_keys', 'blobs', 'change_sets', 'files',
        'trash', 'versions', 'pending_applies', 'proposed_changes', 'sessions', 'events', 'tool_calls', 'audit_records',
        'audit_seals', 'usage_counters', 'paused_calls', 'grants', 'runs', 'messages', 'server_processes',
        'provider_credentials', 'mcp_servers', 'conversation_cursors', 'background_processes', 'outsiders',
        'deleted_workspaces', 'invitations', 'packages', 'reviewed_files', 'schedules', 'model_lanes', 'model_slots',
        'model_starts', 'model_usage', 'nodes', 'idempotency_keys'
    ] loop
        execute format('alter table toolcrib.%I enable row level security', v_table);
        execute format('drop policy if exists system on toolcrib.%I', v_table);
        execute format('create policy system on toolcrib.%I to toolcrib_system using (true) with check (true)', v_table);
    end loop;
    foreach v_table in array array[
        'agents', 'blobs', 'change_sets', 'files', 'versions', 'pending_applies', 'proposed_changes', 'sessions',
        'events', 'trash', 'tool_calls', 'usage_counters', 'paused_calls', 'grants', 'runs', 'messages',
        'mcp_servers', 'conversation_cursors', 'background_processes', 'deleted_workspaces', 'invitations', 'packages',
        'reviewed_files', 'schedules', 'model_slots', 'model_usage'
    ] loop
        execute format('drop policy if exists tenant on toolcrib.%I', v_table);
        execute format('create policy tenant on toolcrib.%I to toolcrib_app
                        using (workspace_id = toolcrib.current_workspace())
                        with check (workspace_id = toolcrib.current_workspace())',
                       v_table);
    end loop;
end
$$;

-- The durable queue: the server works it as the system role. The app role has no access; the functions that put a run
-- into it belong to the definer role.
revoke all on schema dbos from public, toolcrib_app, toolcrib_definer;
revoke all on all tables in schema dbos from public, toolcrib_app, toolcrib_definer;
revoke execute on all functions in schema dbos from public, toolcrib_app, toolcrib_definer;
grant usage on schema dbos to toolcrib_system, toolcrib_definer;
grant select, insert, update, delete on all tables in schema dbos to toolcrib_system;
grant usage on all sequences in schema dbos to toolcrib_system;
grant execute on all functions in schema dbos to toolcrib_system, toolcrib_definer;
grant select, insert, update, delete on dbos.workflow_status to toolcrib_definer;
grant select, insert, delete on dbos.workflow_input to toolcrib_definer;
-- For these functions only: nobody else puts anything into the queue.
revoke execute on function
    enqueue_workflow(text, uuid, uuid, text, integer, bigint) from toolcrib_app, toolcrib_system;
grant execute on function
    enqueue_workflow(text, uuid, uuid, text, integer, bigint) to toolcrib_definer;
revoke execute on function
    is_in_queue(text), paused_call_is_unattended(uuid, integer, uuid, double precision),
    schedule_is_unattended(uuid, timestamptz, double precision), count_unattended(double precision),
    requeue_unattended(double precision), workspaces_with_unattended_queue(double precision, integer)
    from toolcrib_app;

-- A user's own rows.
drop policy if exists self on users;
create policy self on users to toolcrib_app using (id = current_user_id()) with check (id = current_user_id());
drop policy if exists fellow on users;
create policy fellow on users for select to toolcrib_app
    using (id in (select m.user_id from members m where m.workspace_id = current_workspace()));
drop policy if exists self on refresh_tokens;
create policy self on refresh_tokens to toolcrib_app
    using (user_id = current_user_id()) with check (user_id = current_user_id());
drop policy if exists self on provider_credentials;
create policy self on provider_credentials to toolcrib_app
    using (user_id = current_user_id()) with check (user_id = current_user_id());
drop policy if exists self on api_keys;
create policy self on api_keys to toolcrib_app
    using (user_id = current_user_id())
    with check (user_id = current_user_id() and (workspace_id is null or workspace_id = current_workspace()));

-- A user sees the workspace that is the tenant, and the workspaces that they are a member of.
drop policy if exists tenant on workspaces;
create policy tenant on workspaces to toolcrib_app
    using (id = current_workspace() or id in (select own_workspaces()))
    with check (id = current_workspace() or created_by = current_user_id());
drop policy if exists tenant on members;
create policy tenant on members to toolcrib_app
    using (workspace_id = current_workspace() or user_id = current_user_id())
    with check (workspace_id = current_workspace());
drop policy if exists founder on members;
create policy founder on members for insert to toolcrib_app
    with check (user_id = current_user_id() and role = 'owner' and not toolcrib.has_members(workspace_id));

-- The audit log: only `append_audit_records` writes it, for every caller. Reads see only the tenant.
drop policy if exists tenant on audit_records;
create policy tenant on audit_records for select to toolcrib_app using (workspace_id = current_workspace());

-- Tickets: a user creates them in the tenant, for themselves. `redeem_ticket` works before authentication.
alter table connection_tickets enable row level security;
drop policy if exists system on connection_tickets;
create policy system on connection_tickets to toolcrib_system using (true) with check (true);
drop policy if exists self on connection_tickets;
create policy self on connection_tickets to toolcrib_app
    using (workspace_id = current_workspace() and user_id = current_user_id())
    with check (workspace_id = current_workspace() and user_id = current_user_id());

-- The SECURITY DEFINER functions see all workspaces: that is their purpose.
do $$
declare
    v_table     text;
    v_function  regprocedure;
begin
    foreach v_table in array array[
        'users', 'workspaces', 'members', 'agents', 'api_keys', 'grants', 'refresh_tokens', 'files',
        'pending_applies', 'connection_tickets', 'audit_records', 'outsiders', 'invitations', 'runs',
        'paused_calls', 'idempotency_keys', 'server_processes', 'sessions', 'messages'
    ] loop
        execute format('drop policy if exists definer on toolcrib.%I', v_table);
        execute format('create policy definer on toolcrib.%I to toolcrib_definer using (true) with check (true)', v_table);
    end loop;

    -- The new owner of a function needs the CREATE privilege on the schema, but only at that moment.
    grant create on schema toolcrib to toolcrib_definer;
    for v_function in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace = 'toolcrib'::regnamespace and p.prosecdef and p.proowner <> 'toolcrib_definer'::regrole
    loop
        execute format('alter function %s owner to toolcrib_definer', v_function);
    end loop;
    revoke create on schema toolcrib from toolcrib_definer;

    -- These roles need no temporary objects, which can shadow types and tables in careless functions. Only the owner of
    -- the database can revoke the privilege. For others PostgreSQL prints a warning, and nothing depends on it.
    execute format('revoke temporary on database %I from public, toolcrib_app, toolcrib_system, toolcrib_definer',
                   current_database());
end
$$;
