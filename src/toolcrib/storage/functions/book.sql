-- Writing down what was called, and what came of it. In plpgsql, which keeps its plans; SQL functions plan at every call.

-- A call as a row: that it waits or runs, or how it ended, with the events that tell its session so. A call ends once;
-- one that was allowed by a person is carried out once. Who finds that it was done already has come too late (TC410).
create or replace function toolcrib.record_call(p_workspace uuid, p_call jsonb) returns void
language plpgsql volatile
as $$
declare
    v_call   record;
    v_event  record;
begin
    select * into v_call from jsonb_to_record(p_call)
        as c (id uuid, session_id uuid, run_id uuid, fence bigint, user_id uuid, agent_id uuid, tool text,
              arguments jsonb, state text, result jsonb, error jsonb, change_set_id uuid, node text,
              repeatable boolean, approval_id uuid, violation boolean, events jsonb);

    -- What a person's decision ends needs no run that runs; what a run does carries its epoch.
    if v_call.fence is not null then
        perform toolcrib.require_run(p_workspace, v_call.run_id, v_call.fence);
    end if;
    if v_call.session_id is not null then
        perform toolcrib.require_session(p_workspace, v_call.session_id, v_call.agent_id);
    end if;
    if v_call.approval_id is not null and v_call.state not in ('waiting', 'running') then
        perform toolcrib.carried_out(p_workspace, v_call.approval_id);
    end if;

    insert into toolcrib.tool_calls as t
        (workspace_id, id, session_id, run_id, fence, user_id, agent_id, tool, arguments, state, result, error,
         change_set_id, node, repeatable, violation, ended_at)
    values
        (p_workspace, v_call.id, v_call.session_id, v_call.run_id, v_call.fence, v_call.user_id, v_call.agent_id,
         v_call.tool, v_call.arguments, v_call.state, v_call.result, v_call.error, v_call.change_set_id, v_call.node,
         coalesce(v_call.repeatable, true), coalesce(v_call.violation, false),
         case when v_call.state in ('waiting', 'running') then null else now() end)
    on conflict (workspace_id, id) do update set
        state = excluded.state, result = excluded.result, error = excluded.error,
        change_set_id = excluded.change_set_id, node = excluded.node, violation = excluded.violation,
        ended_at = excluded.ended_at
    where t.ended_at is null;
    if not found then
        raise exception 'the call has ended already' using errcode = 'TC410';
    end if;

    if v_call.events is not null then
        for v_event in select * from jsonb_to_recordset(v_call.events) as e (type text, payload jsonb) loop
            perform toolcrib.append_event(p_workspace, v_call.session_id, v_event.type, v_event.payload);
        end loop;
    end if;
end
$$;

-- Records of any workspaces. The policy lets anyone write down, and the grants let nobody rewrite.
create or replace function toolcrib.record_audit(p_records jsonb) returns void
language plpgsql volatile
as $$
begin
    insert into toolcrib.audit
        (id, workspace_id, at, user_id, agent_id, session_id, run_id, call_id, via, tool, decision, rule, approver_id,
         input, outcome, error_code, files, isolation, duration_us)
    select r.id, r.workspace_id, r.at, r.user_id, r.agent_id, r.session_id, r.run_id, r.call_id, r.via, r.tool,
           r.decision, r.rule, r.approver_id, r.input, r.outcome, r.error_code, r.files, r.isolation, r.duration_us
    from jsonb_to_recordset(p_records)
         as r (id uuid, workspace_id uuid, at timestamptz, user_id uuid, agent_id uuid, session_id uuid, run_id uuid,
               call_id uuid, via text, tool text, decision text, rule text, approver_id uuid, input jsonb,
               outcome text, error_code text, files jsonb, isolation text, duration_us bigint);
end
$$;
