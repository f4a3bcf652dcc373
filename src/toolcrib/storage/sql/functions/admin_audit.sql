-- Records administrative actions in the audit log: who changed a permission or a setting, with the values before and
-- after. Triggers write the record in the transaction of the change, so that no change is missing. No record contains a
-- secret.

-- Returns the columns of a row that a record shows. An explicit list, because other columns may be secrets.
create or replace function toolcrib.admin_view(p_table text, p_row jsonb) returns jsonb
language plpgsql immutable strict
as $$
declare
    v_view  jsonb;
begin
    v_view := case p_table
        when 'members' then jsonb_build_object('role', p_row -> 'role')
        when 'workspaces' then jsonb_build_object('name', p_row -> 'name', 'max_trust', p_row -> 'max_trust',
                                                     'default_agent_id', p_row -> 'default_agent_id',
                                                     'budgets', p_row -> 'budgets')
        when 'agents' then jsonb_build_object(
            'name', p_row -> 'name',
            'rules', (p_row -> 'rules') - 'prompt',
            'definition_sha256', encode(sha256(convert_to(p_row ->> 'definition', 'UTF8')), 'hex'),
            'deleted', p_row ->> 'deleted_at' is not null)
        when 'grants' then jsonb_build_object(
            'agent_id', p_row -> 'agent_id', 'session_id', p_row -> 'session_id', 'tools', p_row -> 'tools',
            'paths', p_row -> 'paths', 'commands', p_row -> 'commands', 'hosts', p_row -> 'hosts',
            'arguments', p_row -> 'arguments', 'access', p_row -> 'access', 'pause_id', p_row -> 'pause_id',
            'revoked', p_row ->> 'revoked_at' is not null)
        when 'api_keys' then jsonb_build_object(
            'name', p_row -> 'name', 'agent_id', p_row -> 'agent_id', 'expires_at', p_row -> 'expires_at',
            'revoked', p_row ->> 'revoked_at' is not null)
        when 'provider_credentials' then jsonb_build_object('provider', p_row -> 'provider', 'stored_at', p_row -> 'updated_at')
        when 'mcp_servers' then jsonb_build_object(
            -- The arguments of a program and the path and query of a URL may contain tokens.
            'name', p_row -> 'name', 'transport', p_row -> 'transport', 'program', p_row -> 'command' -> 0,
            'host', substring(p_row ->> 'url' from '^[a-zA-Z]+://(?:[^/?#]*@)?([^/?#@]*)'),
            'hosts', p_row -> 'hosts', 'workspace', p_row -> 'workspace_access',
            'secrets', p_row -> 'secret_names', 'secrets_set_at', p_row -> 'secrets_set_at',
            'safe_tools', p_row -> 'safe_tools', 'enabled', p_row -> 'enabled',
            'approved_tools', (select coalesce(jsonb_object_agg(t ->> 'name', t -> 'sha256'), '{}')
                               from jsonb_array_elements(p_row -> 'approved_tools') t))
        when 'packages' then jsonb_build_object(
            'name', p_row -> 'name', 'version', p_row -> 'version', 'sha256', p_row -> 'sha256',
            'files', p_row -> 'files', 'agents', p_row -> 'agents')
        when 'schedules' then jsonb_build_object(
            'name', p_row -> 'name', 'cron', p_row -> 'cron', 'time_zone', p_row -> 'time_zone',
            'agent_id', p_row -> 'agent_id', 'user_id', p_row -> 'user_id', 'enabled', p_row -> 'enabled',
            'message_sha256', encode(sha256(convert_to(p_row ->> 'message', 'UTF8')), 'hex'))
        when 'sessions' then jsonb_build_object('trust', p_row -> 'trust', 'by_owner', p_row -> 'trust_by_owner',
                                                'phase', p_row -> 'phase')
        when 'invitations' then jsonb_build_object(
            'email', p_row -> 'email', 'role', p_row -> 'role', 'expires_at', p_row -> 'expires_at',
            'accepted_by', p_row -> 'accepted_by', 'revoked', p_row ->> 'revoked_at' is not null)
        when 'deleted_workspaces' then jsonb_build_object('deleted', true)
        when 'users' then jsonb_build_object(
            'email', p_row -> 'email', 'administrator', p_row -> 'is_administrator',
            'disabled', p_row ->> 'disabled_at' is not null,
            'password_reset_until', p_row -> 'reset_expires_at')
    end;
    if octet_length(v_view::text) > 7000 then
        v_view := jsonb_build_object('bytes', octet_length(v_view::text),
                                     'sha256', encode(sha256(convert_to(v_view::text, 'UTF8')), 'hex'));
    end if;
    return v_view;
end
$$;

-- The trigger argument is the name of the object, for example `member` in `member.created`.
create or replace function toolcrib.record_admin() returns trigger
language plpgsql
as $$
declare
    v_nobody  constant uuid := '00000000-0000-0000-0000-000000000000';
    v_old     jsonb := to_jsonb(old);
    v_new     jsonb := to_jsonb(new);
    v_row     jsonb := coalesce(v_new, v_old);
    v_before  jsonb := toolcrib.admin_view(tg_table_name, v_old);
    v_after   jsonb := toolcrib.admin_view(tg_table_name, v_new);
    v_actor   uuid := coalesce(toolcrib.current_user_id(), v_nobody);
    v_verb    text := case tg_op when 'INSERT' then 'created' when 'DELETE' then 'deleted' else 'changed' end;
begin
    -- The record of a deleted workspace covers the deletion of its rows.
    if tg_op = 'DELETE' then
        if exists (
            select from toolcrib.deleted_workspaces d
            where d.workspace_id = coalesce(v_old ->> 'workspace_id', v_old ->> 'id')::uuid
        ) then
            return null;
        end if;
    end if;
    if tg_table_name = 'deleted_workspaces' then
        select toolcrib.admin_view('workspaces', to_jsonb(w)) into v_before
        from toolcrib.workspaces w where w.id = (v_new ->> 'workspace_id')::uuid;
    end if;
    -- The creator of a workspace is its first member; that needs no record.
    if tg_table_name = 'members' and tg_op = 'INSERT' and (v_new ->> 'user_id')::uuid = v_actor then
        if exists (
            select from toolcrib.workspaces w
            where w.id = (v_new ->> 'workspace_id')::uuid and w.created_by = v_actor
        ) then
            return null;
        end if;
    end if;
    if v_old ->> 'password_hash' is distinct from v_new ->> 'password_hash' then
        v_after := v_after || '{"password": "changed"}';
    elsif v_before is not distinct from v_after then
        return null;
    end if;
    if v_after ->> 'revoked' = 'true' then
        v_verb := 'revoked';
    elsif v_after ->> 'accepted_by' is not null then
        v_verb := 'accepted';
    elsif v_after ->> 'deleted' = 'true' then
        v_verb := 'deleted';
    end if;
    perform toolcrib.append_audit_records(jsonb_build_array(jsonb_build_object(
        'id', gen_random_uuid(),
        'workspace_id', coalesce(case tg_table_name when 'workspaces' then v_row ->> 'id' else v_row ->> 'workspace_id' end,
                                 v_nobody::text),
        'created_at', clock_timestamp(), 'user_id', v_actor, 'call_id', gen_random_uuid(), 'via', 'admin',
        'tool', tg_argv[0] || '.' || v_verb, 'decision', 'allow', 'rule', 'admin',
        'arguments', jsonb_build_object('subject', coalesce(v_row -> 'id', v_row -> 'user_id', v_row -> 'workspace_id'),
                                    'before', v_before, 'after', v_after),
        'outcome', 'done', 'files', '[]'::jsonb, 'duration_us', 0)));
    return null;
end
$$;

create or replace trigger record_admin after insert or update of role or delete on members
    for each row execute function record_admin('member');
create or replace trigger record_admin after insert or update of accepted_at, revoked_at on invitations
    for each row execute function record_admin('invitation');
create or replace trigger record_admin after update of name, max_trust, default_agent_id, budgets or delete on workspaces
    for each row execute function record_admin('workspace');
create or replace trigger record_admin after insert on deleted_workspaces
    for each row when (new.node = '') execute function record_admin('workspace');
create or replace trigger record_admin after insert or update of name, definition, rules, deleted_at or delete on agents
    for each row execute function record_admin('agent');
create or replace trigger record_admin after insert or update of revoked_at or delete on grants
    for each row execute function record_admin('grant');
create or replace trigger record_admin after insert or update of revoked_at or delete on api_keys
    for each row execute function record_admin('api_key');
create or replace trigger record_admin after insert or update or delete on provider_credentials
    for each row execute function record_admin('credential');
create or replace trigger record_admin
    after insert or update of name, hosts, workspace_access, encrypted, safe_tools, enabled, approved_tools or delete
    on mcp_servers
    for each row execute function record_admin('mcp_server');
create or replace trigger record_admin after insert or update or delete on packages
    for each row execute function record_admin('package');
create or replace trigger record_admin
    after insert or update of name, cron, time_zone, agent_id, message, enabled or delete on schedules
    for each row execute function record_admin('schedule');
create or replace trigger record_admin after update of trust on sessions
    for each row execute function record_admin('session_trust');
create or replace trigger record_new_trust after insert on sessions
    for each row when (new.trust is not null) execute function record_admin('session_trust');
create or replace trigger record_phase after update of phase on sessions
    for each row execute function record_admin('session_phase');
create or replace trigger record_admin 
    after update of email, disabled_at, is_administrator, password_hash, reset_expires_at on users
    for each row execute function record_admin('user');
