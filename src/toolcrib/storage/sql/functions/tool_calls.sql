-- Stores tool calls and their results. In plpgsql, which caches its plans; SQL functions plan at every call.

-- Inserts or updates a call, and appends its events to the session. A call ends once, and an approved call executes
-- once. Raises TC410 if another process was faster.
create or replace function toolcrib.save_tool_call(p_workspace uuid, p_call jsonb) returns void
language plpgsql volatile
as $$
declare
    v_call   record;
    v_event  record;
begin
    select * into v_call from jsonb_to_record(p_call)
        as c (id uuid, session_id uuid, run_id uuid, run_epoch bigint, user_id uuid, agent_id uuid, tool text,
              arguments jsonb, state text, result jsonb, error jsonb, change_set_id uuid, process_id uuid,
              idempotent boolean, pause_id uuid, is_violation boolean, events jsonb);

    -- A call that a run makes has the epoch of the run. A call that a person's decision ends needs no running run.
    if v_call.run_epoch is not null then
        perform toolcrib.check_run_epoch(p_workspace, v_call.run_id, v_call.run_epoch);
    end if;
    if v_call.session_id is not null then
        perform toolcrib.check_session(p_workspace, v_call.session_id, v_call.agent_id);
    end if;
    if v_call.pause_id is not null and v_call.state not in ('paused', 'running') then
        perform toolcrib.mark_resumed(p_workspace, v_call.pause_id);
    end if;

    insert into toolcrib.tool_calls as t
        (workspace_id, id, session_id, run_id, run_epoch, user_id, agent_id, tool, arguments, state, result, error,
         change_set_id, process_id, idempotent, is_violation, ended_at)
    values
        (p_workspace, v_call.id, v_call.session_id, v_call.run_id, v_call.run_epoch, v_call.user_id, v_call.agent_id,
         v_call.tool, v_call.arguments, v_call.state, v_call.result, v_call.error, v_call.change_set_id,
         v_call.process_id, coalesce(v_call.idempotent, true), coalesce(v_call.is_violation, false),
         case when v_call.state in ('paused', 'running') then null else now() end)
    on conflict (workspace_id, id) do update set
        state = excluded.state, result = excluded.result, error = excluded.error,
        change_set_id = excluded.change_set_id, process_id = excluded.process_id, is_violation = excluded.is_violation,
        ended_at = excluded.ended_at
    where t.ended_at is null;
    if not found then
        raise exception 'the call has ended already' using errcode = 'TC410';
    end if;

    if v_call.tool = 'review_decide' and v_call.state = 'done' and v_call.error is null and v_call.agent_id is null then
        perform toolcrib.save_review(p_workspace, v_call.session_id, v_call.user_id, v_call.result);
    end if;
    if v_call.tool = 'undo' and v_call.state = 'done' and v_call.error is null and v_call.agent_id is null
        and v_call.result ->> 'dry_run' = 'false' then
        perform toolcrib.reopen_review(p_workspace, v_call.user_id, v_call.result -> 'reopened');
    end if;

    if v_call.tool = 'undo' and v_call.state = 'done' and v_call.error is null and v_call.agent_id is null
       and v_call.change_set_id is not null then
        perform toolcrib.note_undo(p_workspace, v_call.result);
    end if;

    if v_call.events is not null then
        for v_event in select * from jsonb_to_recordset(v_call.events) as e (type text, payload jsonb) loop
            perform toolcrib.append_event(p_workspace, v_call.session_id, v_event.type, v_event.payload);
        end loop;
    end if;
end
$$;
