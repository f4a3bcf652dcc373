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

-- Records of any workspaces: the only way into the audit log, and nobody rewrites it. Whoever does not belong to a workspace
-- leaves a short line of a fixed form there, without anything they said but the tool's name, and so many lines a minute.
create or replace function toolcrib.record_audit(p_records jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_written  integer;
    v_record   record;
    v_count    record;
    v_more     bigint;
begin
    insert into audit
        (id, workspace_id, at, user_id, agent_id, session_id, run_id, call_id, via, tool, decision, rule, approver_id,
         input, outcome, error_code, files, isolation, duration_us)
    select r.id, r.workspace_id, r.at, r.user_id, r.agent_id, r.session_id, r.run_id, r.call_id, r.via, r.tool,
           r.decision, r.rule, r.approver_id, r.input, r.outcome, r.error_code, r.files, r.isolation, r.duration_us
    from jsonb_to_recordset(p_records)
         as r (id uuid, workspace_id uuid, at timestamptz, user_id uuid, agent_id uuid, session_id uuid, run_id uuid,
               call_id uuid, via text, tool text, decision text, rule text, approver_id uuid, input jsonb,
               outcome text, error_code text, files jsonb, isolation text, duration_us bigint)
    -- What was done is written down whole, also of someone who was removed meanwhile.
    where r.outcome not in ('refused', 'failed')
       or exists (select from members m where m.workspace_id = r.workspace_id and m.user_id = r.user_id);
    get diagnostics v_written = row_count;
    if v_written = jsonb_array_length(p_records) then
        return;
    end if;

    -- In one order everywhere, because rows are locked.
    for v_record in
        select * from jsonb_to_recordset(p_records)
            as r (id uuid, workspace_id uuid, at timestamptz, user_id uuid, agent_id uuid, call_id uuid, via text,
                  tool text, decision text, rule text, outcome text, error_code text, duration_us bigint)
        where r.outcome in ('refused', 'failed')
          and not exists (select from members m where m.workspace_id = r.workspace_id and m.user_id = r.user_id)
        order by r.user_id, r.id
    loop
        insert into outsiders (user_id) values (v_record.user_id) on conflict do nothing;
        select o.since, o.recorded, o.unrecorded into v_count
        from outsiders o where o.user_id = v_record.user_id for update;
        v_more := 0;
        if v_count.since < clock_timestamp() - interval '1 minute' then
            v_more := v_count.unrecorded;
            update outsiders o set since = clock_timestamp(), recorded = 1, unrecorded = 0
            where o.user_id = v_record.user_id;
        elsif v_count.recorded < 30 then
            update outsiders o set recorded = o.recorded + 1 where o.user_id = v_record.user_id;
        else
            update outsiders o set unrecorded = o.unrecorded + 1 where o.user_id = v_record.user_id;
            continue;
        end if;
        insert into audit
            (id, workspace_id, at, user_id, agent_id, call_id, via, tool, decision, rule, input, outcome, error_code,
             duration_us)
        values
            (v_record.id, v_record.workspace_id, v_record.at, v_record.user_id, v_record.agent_id, v_record.call_id,
             left(v_record.via, 20), left(v_record.tool, 50), left(v_record.decision, 20), left(v_record.rule, 50),
             case when v_more > 0 then jsonb_build_object('unrecorded', v_more) else '{}' end,
             v_record.outcome, left(v_record.error_code, 50), v_record.duration_us);
    end loop;
end
$$;
