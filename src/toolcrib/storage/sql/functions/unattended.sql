-- What nobody attends to: its process is dead, or nothing in the queue will start it. There should be none: workers take
-- up the runs that are found here, the lists of runs name them, and `/metrics` counts them all.

-- Whether an entry is in the queue, or has been begun by a process.
create or replace function toolcrib.is_in_queue(p_id text) returns boolean
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    select exists (select from dbos.workflow_status s
                   where s.workflow_uuid = p_id and s.status in ('ENQUEUED', 'DELAYED', 'PENDING'))
$$;

-- A run is also unattended if its process is silent for so many seconds, and no other process has taken it over.
create or replace function toolcrib.run_is_unattended(
    p_run uuid, p_state text, p_epoch bigint, p_worker uuid, p_awaits_slot boolean, p_seconds double precision
) returns boolean
language sql stable security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    select case p_state
        when 'running' then not toolcrib.process_is_alive(p_worker, p_seconds)
        -- The entry is made in the transaction that makes the run ready. One that awaits a slot gets it with the slot.
        when 'ready' then not p_awaits_slot and not toolcrib.is_in_queue(p_run || '/' || (p_epoch + 1))
        else false
    end
$$;

create or replace function toolcrib.count_unattended(p_seconds double precision)
returns table (runs bigint, approved_calls bigint, calls bigint, schedules bigint)
language sql stable
as $$
    select
        (select count(*) from toolcrib.runs r
         where r.state in ('ready', 'running')
           and toolcrib.run_is_unattended(r.id, r.state, r.epoch, r.worker_id, r.awaits_slot, p_seconds)),
        (select count(*) from toolcrib.paused_calls p
         where p.state in ('approved', 'stale') and p.resumed_at is null
           and (p.state = 'stale' or (p.state = 'approved' and p.run_id is null))
           and case when p.claimed_by is null
                   then not toolcrib.is_in_queue('call/' || p.id || '/' || p.queue_entry)
                   else not toolcrib.process_is_alive(p.claimed_by, p_seconds) end),
        -- A run ends its own calls.
        (select count(*) from toolcrib.tool_calls c
         where c.state = 'running' and c.run_id is null and not toolcrib.process_is_alive(c.process_id, p_seconds)),
        (select count(*) from toolcrib.schedules s
         where s.next_at < now() - make_interval(secs => p_seconds)
           and not toolcrib.is_in_queue('schedule/' || s.id || '/' || extract(epoch from s.next_at)::bigint))
$$;
