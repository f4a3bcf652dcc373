-- Schedules. The next firing of each is an entry of the durable queue, so a schedule costs no thread and no polling.

-- Keeps the entry in step with the row, in the transaction that changes it. Its id has the time of the firing, so it exists
-- only once.
create or replace function toolcrib.enqueue_schedule() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_old    text := 'schedule/' || old.id || '/' || extract(epoch from old.next_at)::bigint;
    v_new    text := 'schedule/' || new.id || '/' || extract(epoch from new.next_at)::bigint;
begin
    if v_new is not distinct from v_old and (v_new is null or toolcrib.is_in_queue(v_new)) then
        return null;
    end if;
    -- Otherwise what was moved or deleted would wait in the queue for years. An entry that has begun does nothing.
    delete from dbos.workflow_input i using dbos.workflow_status s
    where i.workflow_uuid = s.workflow_uuid and s.workflow_uuid = v_old and s.status = 'DELAYED';
    delete from dbos.workflow_status s where s.workflow_uuid = v_old and s.status = 'DELAYED';
    if v_new is not null then
        -- A clock that runs ahead may have ended this entry before the schedule was moved back to its time.
        delete from dbos.workflow_status s
        where s.workflow_uuid = v_new and s.status not in ('DELAYED', 'ENQUEUED', 'PENDING');
        perform toolcrib.enqueue_workflow(
            'schedule', new.workspace_id, new.id, v_new, 0,
            (extract(epoch from new.next_at - clock_timestamp()) * 1000)::bigint);
    end if;
    return null;
end
$$;
create or replace trigger enqueue_schedule after insert or update of next_at or delete on toolcrib.schedules
    for each row execute function toolcrib.enqueue_schedule();
