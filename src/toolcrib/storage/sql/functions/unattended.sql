-- What nobody attends to: its process is dead, or nothing in the queue will start it. There should be none: workers take
-- up such runs, a periodic job puts the others into the queue again, and `/metrics` counts them all.

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

-- An approved call that no run executes, or a stale one. The arguments are columns of its row.
create or replace function toolcrib.paused_call_is_unattended(
    p_pause uuid, p_queue_entry integer, p_claimed_by uuid, p_seconds double precision
) returns boolean
language sql stable
as $$
    select case when p_claimed_by is null then not toolcrib.is_in_queue('call/' || p_pause || '/' || p_queue_entry)
                else not toolcrib.process_is_alive(p_claimed_by, p_seconds) end
$$;

-- A schedule whose time was so many seconds ago.
create or replace function toolcrib.schedule_is_unattended(
    p_schedule uuid, p_next_at timestamptz, p_seconds double precision
) returns boolean
language sql stable
as $$
    select p_next_at < now() - make_interval(secs => p_seconds)
           and not toolcrib.is_in_queue('schedule/' || p_schedule || '/' || extract(epoch from p_next_at)::bigint)
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
           and toolcrib.paused_call_is_unattended(p.id, p.queue_entry, p.claimed_by, p_seconds)),
        -- A run ends its own calls.
        (select count(*) from toolcrib.tool_calls c
         where c.state = 'running' and c.run_id is null and not toolcrib.process_is_alive(c.process_id, p_seconds)),
        (select count(*) from toolcrib.schedules s
         where toolcrib.schedule_is_unattended(s.id, s.next_at, p_seconds))
$$;

-- Puts what nobody attends to into the queue again. Returns how many that was. Runs are for the workers, and calls that
-- have begun end as interrupted.
create or replace function toolcrib.requeue_unattended(p_seconds double precision)
returns table (approved_calls bigint, schedules bigint)
language sql volatile
as $$
    with calls as (
        -- Its trigger makes an entry, as when a claim is released.
        update toolcrib.paused_calls p set claimed_by = null
        where p.state in ('approved', 'stale') and p.resumed_at is null
          and (p.state = 'stale' or (p.state = 'approved' and p.run_id is null))
          and toolcrib.paused_call_is_unattended(p.id, p.queue_entry, p.claimed_by, p_seconds)
        returning 1
    ), due as (
        -- So does this one, of a firing that has none.
        update toolcrib.schedules s set next_at = s.next_at
        where toolcrib.schedule_is_unattended(s.id, s.next_at, p_seconds)
        returning 1
    )
    select (select count(*) from calls), (select count(*) from due)
$$;

-- Workspaces with a queued run that could start, and that has waited for so many seconds.
create or replace function toolcrib.workspaces_with_unattended_queue(p_seconds double precision, p_most integer)
returns setof uuid
language sql stable
as $$
    select distinct r.workspace_id from toolcrib.runs r
    where r.state = 'queued' and not r.held and r.created_at < now() - make_interval(secs => p_seconds)
      and not exists (select from toolcrib.runs o
                      where o.workspace_id = r.workspace_id and o.session_id = r.session_id
                        and o.state in ('ready', 'running', 'waiting'))
      and (select count(*) from toolcrib.runs o
           where o.workspace_id = r.workspace_id and o.state in ('ready', 'running')) < p_most
$$;
