-- Writes to the audit log.

-- Appends records of any workspaces: the only way to write to the audit log, which is append-only. A user who is not a
-- member leaves a short record of fixed fields, with the tool's name as their only input, and at most 30 in a minute.
create or replace function toolcrib.append_audit_records(p_records jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_written  integer;
    v_record   record;
    v_count    record;
    v_more     bigint;
begin
    insert into audit_records
        (id, workspace_id, created_at, user_id, agent_id, session_id, run_id, call_id, via, tool, decision, rule,
         decided_by, arguments, outcome, error_code, files, hosts, isolation, duration_us)
    select r.id, r.workspace_id, r.created_at, r.user_id, r.agent_id, r.session_id, r.run_id, r.call_id, r.via, r.tool,
           r.decision, r.rule, r.decided_by, r.arguments, r.outcome, r.error_code, r.files,
           coalesce(r.hosts, '[]'), r.isolation, r.duration_us
    from jsonb_to_recordset(p_records)
         as r (id uuid, workspace_id uuid, created_at timestamptz, user_id uuid, agent_id uuid, session_id uuid,
               run_id uuid, call_id uuid, via text, tool text, decision text, rule text, decided_by uuid,
               arguments jsonb, outcome text, error_code text, files jsonb, hosts jsonb, isolation text, duration_us bigint)
    -- Executed calls have full records, even if the user was removed from the workspace meanwhile.
    where r.outcome not in ('denied', 'failed')
       or exists (select from members m where m.workspace_id = r.workspace_id and m.user_id = r.user_id);
    get diagnostics v_written = row_count;
    if v_written = jsonb_array_length(p_records) then
        return;
    end if;

    -- Always in the same order, because it locks rows.
    for v_record in
        select * from jsonb_to_recordset(p_records)
            as r (id uuid, workspace_id uuid, created_at timestamptz, user_id uuid, agent_id uuid, call_id uuid,
                  via text, tool text, decision text, rule text, outcome text, error_code text, duration_us bigint)
        where r.outcome in ('denied', 'failed')
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
        insert into audit_records
            (id, workspace_id, created_at, user_id, agent_id, call_id, via, tool, decision, rule, arguments, outcome,
             error_code, duration_us)
        values
            (v_record.id, v_record.workspace_id, v_record.created_at, v_record.user_id, v_record.agent_id,
             v_record.call_id, left(v_record.via, 20), left(v_record.tool, 50), left(v_record.decision, 20),
             left(v_record.rule, 50),
             case when v_more > 0 then jsonb_build_object('unrecorded', v_more) else '{}' end,
             v_record.outcome, left(v_record.error_code, 50), v_record.duration_us);
    end loop;
end
$$;
