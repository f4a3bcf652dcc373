-- Slots for model requests with a limited credential. The lane's row is locked first, so all processes together keep to
-- the limits. With the system role.

-- Requests a slot for the next model request of a run. Returns whether the request may start now. If not, the run has a
-- place among those that wait.
create or replace function toolcrib.acquire_model_slot(
    p_workspace uuid, p_run uuid, p_user uuid, p_provider text, p_process uuid, p_at_once integer, p_per_minute integer
) returns boolean
language plpgsql volatile
as $$
declare
    v_place    bigint;
    v_granted  timestamptz;
begin
    insert into toolcrib.model_lanes (user_id, provider, at_once, per_minute)
    values (p_user, p_provider, p_at_once, p_per_minute)
    on conflict (user_id, provider) do update set at_once = excluded.at_once, per_minute = excluded.per_minute
    returning place into v_place;
    insert into toolcrib.model_slots (workspace_id, run_id, user_id, provider, place)
    values (p_workspace, p_run, p_user, p_provider, greatest(v_place, (
        select s.place + 1 from toolcrib.model_slots s
        where s.user_id = p_user and s.provider = p_provider and s.workspace_id = p_workspace
        order by s.user_id desc, s.provider desc, s.workspace_id desc, s.place desc limit 1)))
    on conflict do nothing;
    perform toolcrib.grant_model_slots(p_user, p_provider);
    update toolcrib.model_slots set process_id = p_process
    where workspace_id = p_workspace and run_id = p_run and user_id = p_user and provider = p_provider
      and granted_at is not null
    returning granted_at into v_granted;
    -- It starts now. It may have had its slot for a while.
    update toolcrib.model_starts set started_at = clock_timestamp()
    where user_id = p_user and provider = p_provider and started_at = v_granted and run_id = p_run;
    return v_granted is not null;
end
$$;

-- Ends a model request. Returns the runs that go on instead.
create or replace function toolcrib.release_model_slot(
    p_workspace uuid, p_run uuid, p_user uuid, p_provider text, p_process uuid
) returns table (workspace_id uuid, run_id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    perform from toolcrib.model_lanes l where l.user_id = p_user and l.provider = p_provider for no key update;
    delete from toolcrib.model_slots s
    where s.workspace_id = p_workspace and s.run_id = p_run and s.user_id = p_user and s.provider = p_provider
      and s.process_id = p_process;
    if found then
        update toolcrib.model_lanes l set held = l.held - 1 where l.user_id = p_user and l.provider = p_provider;
    end if;
    return query select * from toolcrib.grant_model_slots(p_user, p_provider);
end
$$;

-- When the next request may start. Null: now.
create or replace function toolcrib.next_model_start(p_user uuid, p_provider text, p_per_minute integer)
returns timestamptz
language plpgsql volatile
as $$
declare
    v_at  timestamptz;
begin
    select s.started_at + interval '1 minute' into v_at from toolcrib.model_starts s
    where s.user_id = p_user and s.provider = p_provider
    order by s.user_id desc, s.provider desc, s.started_at desc offset p_per_minute - 1 limit 1;
    return case when v_at > clock_timestamp() then v_at end;
end
$$;

-- Starts another attempt of a request that has a slot. Returns in how many seconds it may start. 0: now.
create or replace function toolcrib.restart_model_request(p_user uuid, p_provider text, p_run uuid) returns double precision
language plpgsql volatile
as $$
declare
    v_per_minute  integer;
    v_at          timestamptz;
begin
    select l.per_minute into v_per_minute from toolcrib.model_lanes l
    where l.user_id = p_user and l.provider = p_provider for no key update;
    if v_per_minute is not null then
        v_at := toolcrib.next_model_start(p_user, p_provider, v_per_minute);
        if v_at is not null then
            return extract(epoch from v_at - clock_timestamp());
        end if;
        insert into toolcrib.model_starts (user_id, provider, run_id) values (p_user, p_provider, p_run);
    end if;
    return 0;
end
$$;

-- Gives slots to those that wait, while there is room. Makes their runs ready, and returns these. The lane's row is locked.
create or replace function toolcrib.grant_model_slots(p_user uuid, p_provider text)
returns table (workspace_id uuid, run_id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_lane  record;
    v_slot  record;
    v_now   timestamptz;
begin
    select l.at_once, l.per_minute, l.held, l.place into v_lane from toolcrib.model_lanes l
    where l.user_id = p_user and l.provider = p_provider;
    delete from toolcrib.model_starts s
    where s.user_id = p_user and s.provider = p_provider
      and s.started_at < clock_timestamp() - interval '1 minute';
    -- A raised limit lets many in. The others follow a moment later, so that no statement takes long.
    for i in 1..50 loop
        exit when v_lane.held >= v_lane.at_once;
        exit when v_lane.per_minute is not null
            and toolcrib.next_model_start(p_user, p_provider, v_lane.per_minute) is not null;
        select s.workspace_id, s.run_id, s.place into v_slot from toolcrib.model_slots s
        where s.user_id = p_user and s.provider = p_provider and s.granted_at is null
        order by s.user_id, s.provider, s.place, s.waiting_since limit 1;
        exit when not found;
        -- Waits for a run that is about to be put aside: otherwise it would miss both the slot and this update.
        perform from toolcrib.runs r
        where r.workspace_id = v_slot.workspace_id and r.id = v_slot.run_id and r.state in ('ready', 'running')
        for no key update;
        if not found then
            delete from toolcrib.model_slots s
            where s.workspace_id = v_slot.workspace_id and s.run_id = v_slot.run_id and s.user_id = p_user
              and s.provider = p_provider;
            continue;
        end if;
        v_now := clock_timestamp();
        update toolcrib.model_slots s set granted_at = v_now
        where s.workspace_id = v_slot.workspace_id and s.run_id = v_slot.run_id and s.user_id = p_user
          and s.provider = p_provider;
        if v_lane.per_minute is not null then
            insert into toolcrib.model_starts (user_id, provider, run_id, started_at)
            values (p_user, p_provider, v_slot.run_id, v_now);
        end if;
        v_lane.held := v_lane.held + 1;
        v_lane.place := greatest(v_lane.place, v_slot.place);
        -- The assignment of the state puts the run into the queue.
        update toolcrib.runs r set awaits_slot = false, state = 'ready'
        where r.workspace_id = v_slot.workspace_id and r.id = v_slot.run_id and r.state = 'ready' and r.awaits_slot;
        if found then
            workspace_id := v_slot.workspace_id;
            run_id := v_slot.run_id;
            return next;
        end if;
    end loop;
    update toolcrib.model_lanes l set held = v_lane.held, place = v_lane.place
    where l.user_id = p_user and l.provider = p_provider and (l.held, l.place) <> (v_lane.held, v_lane.place);
end
$$;

-- Frees the slots of dead processes and of runs that were not taken in time, then gives them and what the last minute
-- left to those that wait. Returns the runs that go on.
create or replace function toolcrib.sweep_model_slots(p_process uuid, p_lease double precision)
returns table (workspace_id uuid, run_id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_dead  uuid[];
    v_lane  record;
begin
    select array_agg(p.id) into v_dead from (
        with recursive processes (id) as (
            (select s.process_id from toolcrib.model_slots s where s.process_id is not null order by 1 limit 1)
            union all
            select n.id from processes p cross join lateral (
                select s.process_id as id from toolcrib.model_slots s where s.process_id > p.id order by 1 limit 1) n
        )
        select id from processes) p
    where p.id <> p_process and not toolcrib.process_is_alive(p.id, p_lease);
    for v_lane in
        with recursive waiting (user_id, provider) as (
            (select s.user_id, s.provider from toolcrib.model_slots s where s.granted_at is null
             order by s.user_id, s.provider limit 1)
            union all
            select n.user_id, n.provider from waiting w cross join lateral (
                select s.user_id, s.provider from toolcrib.model_slots s
                where s.granted_at is null and (s.user_id, s.provider) > (w.user_id, w.provider)
                order by s.user_id, s.provider limit 1) n
        )
        select f.user_id, f.provider, bool_or(f.is_stale) as is_stale from (
            select s.user_id, s.provider, true as is_stale from toolcrib.model_slots s where s.process_id = any (v_dead)
            union all
            select s.user_id, s.provider, true from toolcrib.model_slots s
            where s.granted_at < now() - interval '30 seconds' and s.process_id is null
            union all
            select w.user_id, w.provider, false from waiting w) f
        group by f.user_id, f.provider
    loop
        -- Another process may be at it.
        perform from toolcrib.model_lanes l
        where l.user_id = v_lane.user_id and l.provider = v_lane.provider for no key update skip locked;
        continue when not found;
        if v_lane.is_stale then
            delete from toolcrib.model_slots s
            where s.user_id = v_lane.user_id and s.provider = v_lane.provider
              and (s.process_id = any (v_dead)
                   or (s.granted_at < now() - interval '30 seconds' and s.process_id is null));
            update toolcrib.model_lanes l set held = (
                select count(*) from toolcrib.model_slots s
                where s.user_id = l.user_id and s.provider = l.provider and s.granted_at is not null)
            where l.user_id = v_lane.user_id and l.provider = v_lane.provider;
        end if;
        return query select * from toolcrib.grant_model_slots(v_lane.user_id, v_lane.provider);
    end loop;
end
$$;
