-- Writing down what was called, and what came of it. In plpgsql, which keeps its plans; SQL functions plan at every call.

-- A call that has ended, as a row.
create or replace function toolcrib.record_call(p_workspace uuid, p_call jsonb) returns void
language plpgsql volatile
as $$
begin
    insert into toolcrib.tool_calls
        (workspace_id, id, session_id, run_id, fence, user_id, agent_id, tool, arguments, state, result, error,
         change_set_id, ended_at)
    select p_workspace, c.id, c.session_id, c.run_id, c.fence, c.user_id, c.agent_id, c.tool, c.arguments, c.state,
           c.result, c.error, c.change_set_id, now()
    from jsonb_to_record(p_call) as c (id uuid, session_id uuid, run_id uuid, fence bigint, user_id uuid, agent_id uuid,
                                       tool text, arguments jsonb, state text, result jsonb, error jsonb,
                                       change_set_id uuid);
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
