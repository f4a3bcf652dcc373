-- Runs. Every step is committed with the epoch of the run, so a process that lost the run cannot commit.

-- Locks the run's row until the transaction ends: a takeover waits for the commit, and then sees it.
create or replace function toolcrib.check_run_epoch(p_workspace uuid, p_run uuid, p_epoch bigint) returns void
language plpgsql volatile
as $$
begin
    perform from toolcrib.runs r
    where r.workspace_id = p_workspace and r.id = p_run and r.epoch = p_epoch and r.state = 'running'
    for share;
    if not found then
        raise exception 'another process carries this run on' using errcode = 'TC409';
    end if;
end
$$;

-- The same for a change of the run itself. All functions lock in the same order: the active run, its session, then the
-- queued runs of the session.
create or replace function toolcrib.lock_run(p_workspace uuid, p_run uuid, p_epoch bigint) returns void
language plpgsql volatile
as $$
begin
    perform from toolcrib.runs r
    where r.workspace_id = p_workspace and r.id = p_run and r.epoch = p_epoch and r.state = 'running'
    for no key update;
    if not found then
        raise exception 'another process carries this run on' using errcode = 'TC409';
    end if;
end
$$;

-- Returns the current authorization of a run: the role of its user, and a stamp of the session's, the agent's and the
-- workspace's settings and of the grants, to detect changes.
create or replace function toolcrib.run_authorization(p_workspace uuid, p_session uuid, p_user uuid, p_agent uuid)
returns table (role text, stamp text)
language plpgsql stable
as $$
begin
    return query select
        (select m.role from toolcrib.members m join toolcrib.users u on u.id = m.user_id
         where m.workspace_id = p_workspace and m.user_id = p_user and u.disabled_at is null),
        concat_ws(' ',
            -- A child run has at most the permissions of its parent.
            (select above.stamp from toolcrib.sessions s
             join toolcrib.runs parent on parent.workspace_id = s.workspace_id and parent.id = s.parent_run_id
             cross join lateral toolcrib.run_authorization(
                 p_workspace, parent.session_id, p_user, parent.agent_id) above
             where s.workspace_id = p_workspace and s.id = p_session),
            (select concat_ws(' ', s.mode, coalesce(s.trust, '-'), s.trust_by_owner, s.provider, s.model,
                              coalesce(s.phase, '-'))
             from toolcrib.sessions s
             where s.workspace_id = p_workspace and s.id = p_session),
            (select concat_ws(' ', a.updated_at, a.deleted_at) from toolcrib.agents a
             where a.workspace_id = p_workspace and a.id = p_agent),
            (select w.max_trust from toolcrib.workspaces w where w.id = p_workspace),
            md5(toolcrib.agent_grants(p_workspace, p_agent)::text));
end
$$;

-- Adds a message to a session. Locks the session's row, so positions have no gaps and no duplicates.
create or replace function toolcrib.add_message(
    p_workspace uuid, p_session uuid, p_id uuid, p_run uuid, p_role text, p_content text, p_metadata jsonb
) returns bigint
language plpgsql volatile
as $$
declare
    v_position  bigint;
    -- `now()` is the start of the transaction: the same time as in the message's row.
    v_text      text := toolcrib.message_text(p_role, p_content, p_metadata, now());
begin
    update toolcrib.sessions set
        last_message_position = last_message_position + 1, text_bytes = text_bytes + octet_length(v_text),
        text_lines = text_lines + toolcrib.count_lines(v_text), updated_at = now()
    where workspace_id = p_workspace and id = p_session
    returning last_message_position into v_position;
    insert into toolcrib.messages (workspace_id, session_id, position, id, run_id, role, content, metadata)
    values (p_workspace, p_session, v_position, p_id, p_run, p_role, p_content, p_metadata);
    return v_position;
end
$$;

-- Adds a message of a conversation that began elsewhere, with its event. What a person wrote counts as this user's.
create or replace function toolcrib.add_earlier_message(
    p_workspace uuid, p_session uuid, p_id uuid, p_user uuid, p_role text, p_content text
) returns void
language plpgsql volatile
as $$
begin
    perform toolcrib.add_message(p_workspace, p_session, p_id, null, p_role, p_content, null);
    perform toolcrib.append_event(p_workspace, p_session, 'message',
        jsonb_build_object('messageId', p_id, 'runId', null, 'role', p_role, 'content', p_content)
        || case when p_role <> 'user' then '{}' else jsonb_build_object('authorId', p_user, 'author', (
            select coalesce(u.full_name, u.email) from toolcrib.users u where u.id = p_user)) end);
end
$$;

-- Returns the files of a message as events name them; nothing if there are none.
create or replace function toolcrib.attachments_payload(p_attachments jsonb) returns jsonb
language sql immutable
as $$
    select case when p_attachments is null then '{}' else jsonb_build_object('attachments', (
        select jsonb_agg(jsonb_build_object('path', a ->> 'path', 'toolId', a ->> 'call_id'))
        from jsonb_array_elements(p_attachments) a)) end
$$;

-- Returns who sent the message of a run, as events name them.
create or replace function toolcrib.author_payload(p_workspace uuid, p_run uuid) returns jsonb
language sql stable
as $$
    select jsonb_build_object('authorId', r.user_id, 'author', (
        select coalesce(u.full_name, u.email) from toolcrib.users u where u.id = r.user_id))
    from toolcrib.runs r where r.workspace_id = p_workspace and r.id = p_run
$$;

-- Starts a queued run: its prompt becomes a message (unless it only compacts), which also tells the model what reviews
-- decided since the last one, and a worker may take it.
create or replace function toolcrib.start_run(p_workspace uuid, p_run uuid) returns void
language plpgsql volatile
as $$
declare
    v_run       record;
    v_note      text;
    v_metadata  jsonb;
    v_author    jsonb := toolcrib.author_payload(p_workspace, p_run);
begin
    -- The context starts at the size that the previous run left.
    update toolcrib.runs r set state = 'ready',
        context_tokens = coalesce((select b.context_tokens from toolcrib.runs b
                                   where b.workspace_id = r.workspace_id and b.session_id = r.session_id
                                     and b.state = 'ended' and (b.turns > 0 or b.compacts) and b.context_tokens > 0
                                   order by b.id desc limit 1), 0)
    where r.workspace_id = p_workspace and r.id = p_run
    returning r.session_id, r.prompt, r.attachments, r.compacts into v_run;
    if v_run.compacts then
        return;
    end if;
    select s.review_note into v_note from toolcrib.sessions s
    where s.workspace_id = p_workspace and s.id = v_run.session_id for no key update;
    v_metadata := nullif(
        jsonb_strip_nulls(jsonb_build_object('review', v_note, 'attachments', v_run.attachments)), '{}');
    if v_note is not null then
        update toolcrib.sessions set review_note = null where workspace_id = p_workspace and id = v_run.session_id;
    end if;
    perform toolcrib.add_message(p_workspace, v_run.session_id, p_run, p_run, 'user', v_run.prompt, v_metadata);
    perform toolcrib.append_event(p_workspace, v_run.session_id, 'message', jsonb_build_object(
        'messageId', p_run, 'runId', p_run, 'role', 'user', 'content', v_run.prompt)
        || v_author || toolcrib.attachments_payload(v_run.attachments));
end
$$;

-- Appends the event of a run's state.
create or replace function toolcrib.append_run_state(p_workspace uuid, p_run uuid) returns void
language plpgsql volatile
as $$
declare
    v_run      record;
    v_payload  jsonb;
begin
    select r.session_id, r.state, r.end_reason, r.error, r.turns, r.input_tokens, r.output_tokens, r.prompt, r.held,
           r.attachments, r.compacts, r.not_before, r.provider_waits, r.awaits_slot, r.waits_for_child, r.cost + r.child_cost as cost,
           r.unpriced_turns + r.child_unpriced as unpriced_turns
    into v_run from toolcrib.runs r where r.workspace_id = p_workspace and r.id = p_run;
    v_payload := jsonb_build_object(
        'runId', p_run, 'state', v_run.state, 'endReason', v_run.end_reason, 'error', v_run.error,
        'turns', v_run.turns, 'inputTokens', v_run.input_tokens, 'outputTokens', v_run.output_tokens,
        -- Null if no price is known.
        'cost', case when v_run.cost > 0 or v_run.unpriced_turns = 0 then trim_scale(v_run.cost)::text end,
        'unpricedTurns', v_run.unpriced_turns);
    if v_run.state = 'queued' then
        -- It becomes a message only when the run starts; until then this shows what is queued.
        v_payload := v_payload || jsonb_build_object('prompt', v_run.prompt, 'held', v_run.held)
            || toolcrib.author_payload(p_workspace, p_run) || toolcrib.attachments_payload(v_run.attachments);
        if v_run.compacts then
            -- It brings no message.
            v_payload := v_payload || '{"compacts": true}';
        end if;
    end if;
    if v_run.state = 'waiting' or v_run.awaits_slot or v_run.not_before is not null then
        v_payload := v_payload || jsonb_build_object('waitsFor', case
            when v_run.state = 'waiting' then case when v_run.waits_for_child then 'child' else 'person' end
            when v_run.awaits_slot then 'credential'
            -- Otherwise it is put aside because its workspace is quarantined.
            when v_run.provider_waits > 0 then 'provider' else 'worker' end);
    end if;
    if v_run.not_before is not null then
        v_payload := v_payload || jsonb_build_object('until', v_run.not_before);
    end if;
    perform toolcrib.append_event(p_workspace, v_run.session_id, 'run-state', v_payload);
end
$$;

-- Ends a run. The caller has locked it, or its session if it is queued.
create or replace function toolcrib.mark_run_ended(p_workspace uuid, p_run uuid, p_reason text, p_error jsonb)
returns void
language plpgsql volatile
as $$
declare
    v_session  uuid;
begin
    update toolcrib.runs r set
        state = 'ended', end_reason = p_reason, error = p_error, worker_id = null, ended_at = now(),
        active_ms = r.active_ms + coalesce((extract(epoch from now() - r.active_since) * 1000)::bigint, 0),
        active_since = null, not_before = null, awaits_slot = false
    where r.workspace_id = p_workspace and r.id = p_run
    returning r.session_id into v_session;
    perform toolcrib.announce_review(p_workspace, v_session, p_run);
    perform toolcrib.append_run_state(p_workspace, p_run);
end
$$;

-- Ends a run of this process, with the last turn of the model if there is one. Returns the runs that start instead of it.
create or replace function toolcrib.end_run(
    p_workspace uuid, p_run uuid, p_epoch bigint, p_reason text, p_error jsonb, p_turn jsonb, p_most integer
) returns setof uuid
language plpgsql volatile
as $$
begin
    perform toolcrib.lock_run(p_workspace, p_run, p_epoch);
    perform from toolcrib.sessions s join toolcrib.runs r on r.workspace_id = s.workspace_id and r.session_id = s.id
    where r.workspace_id = p_workspace and r.id = p_run for no key update of s;
    if p_turn is not null then
        perform toolcrib.save_turn(p_workspace, p_run, p_epoch, p_turn);
    end if;
    perform toolcrib.mark_run_ended(p_workspace, p_run, p_reason, p_error);
    return query select toolcrib.start_queued_runs(p_workspace, p_most);
end
$$;

-- Starts queued runs of a workspace, by priority and age, while fewer than p_most are at work. A session has one run at a
-- time. Returns what it started. Runs that are put aside count: others would most likely reach the provider's limit too.
create or replace function toolcrib.start_queued_runs(p_workspace uuid, p_most integer) returns setof uuid
language plpgsql volatile
as $$
declare
    v_at_work  integer;
    v_run      uuid;
begin
    -- Submissions and endings of one workspace take turns here, so that the last one sees the others.
    perform pg_advisory_xact_lock(hashtextextended('start_queued_runs ' || p_workspace::text, 0));
    select count(*) into v_at_work from toolcrib.runs r
    where r.workspace_id = p_workspace and r.state in ('ready', 'running');
    while v_at_work < p_most loop
        -- A transaction that holds another session's row may wait for our turn, so we do not wait for it.
        select r.id into v_run from toolcrib.runs r
        join toolcrib.sessions s on s.workspace_id = r.workspace_id and s.id = r.session_id
        where r.workspace_id = p_workspace and r.state = 'queued' and not r.held
          and not exists (select from toolcrib.runs o
                          where o.workspace_id = r.workspace_id and o.session_id = r.session_id
                            and o.state in ('ready', 'running', 'waiting'))
        order by r.priority, r.id limit 1
        for no key update of s skip locked;
        if not found then
            perform toolcrib.start_queued_runs_later(p_workspace);
            return;
        end if;
        perform toolcrib.start_run(p_workspace, v_run);
        perform toolcrib.append_run_state(p_workspace, v_run);
        return next v_run;
        v_at_work := v_at_work + 1;
    end loop;
end
$$;

-- Repeats `start_queued_runs` in a second if it had to skip a session that was locked.
create or replace function toolcrib.start_queued_runs_later(p_workspace uuid) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
begin
    if exists (select from toolcrib.runs r
               where r.workspace_id = p_workspace and r.state = 'queued' and not r.held
                 and not exists (select from toolcrib.runs o
                                 where o.workspace_id = r.workspace_id and o.session_id = r.session_id
                                   and o.state in ('ready', 'running', 'waiting'))) then
        perform toolcrib.enqueue_workflow('start_queued', p_workspace, null, gen_random_uuid()::text, 0, 1000);
    end if;
end
$$;

-- Puts a run into the queue of its workspace's node. Its place is the number of the workspace's runs that are already
-- there: a workspace with many runs does not delay another one's first. The priority that people choose orders only the
-- queued runs of their workspace (`start_queued_runs`). It is not part of the place, not even between equal ones:
-- otherwise a workspace that always asks for 0 would always come before one that asks for nothing. It can only move a
-- run back: from 500 on it is background work, and comes after everything else of all workspaces.
create or replace function toolcrib.enqueue_ready_run() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_rank  integer;
begin
    select count(*) into v_rank from toolcrib.runs r
    where r.workspace_id = new.workspace_id and r.state in ('ready', 'running');
    perform toolcrib.enqueue_workflow(
        'advance', new.workspace_id, new.id, new.id || '/' || (new.epoch + 1),
        case when new.priority >= 500 then 100000 else 0 end + least(v_rank, 99999),
        -- A run that is put aside holds no worker until its time has come.
        coalesce(ceil(extract(epoch from new.not_before - now()) * 1000)::integer, 0));
    return null;
end
$$;
create or replace trigger enqueue_ready_run after insert or update of state on toolcrib.runs
    for each row when (new.state = 'ready' and not new.awaits_slot) execute function toolcrib.enqueue_ready_run();

-- Takes the entry of a run that ended or waits out of the queue. Most runs start at once where they became ready, and
-- many are over before their entry comes up. An entry that a worker has begun, or is about to, ends by itself.
create or replace function toolcrib.dequeue_run() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
begin
    with removed as (
        delete from dbos.workflow_status s
        where s.workflow_uuid in (
            select e.workflow_uuid from dbos.workflow_status e
            where e.workflow_uuid in (new.id || '/' || new.epoch, new.id || '/' || (new.epoch + 1))
              and e.status in ('ENQUEUED', 'DELAYED')
            for update skip locked)
        returning s.workflow_uuid
    )
    delete from dbos.workflow_input i using removed where i.workflow_uuid = removed.workflow_uuid;
    return null;
end
$$;
create or replace trigger dequeue_run after update of state on toolcrib.runs
    for each row when (old.state in ('ready', 'running') and new.state in ('ended', 'waiting'))
    execute function toolcrib.dequeue_run();

-- The only access to the queue for sessions of the app role, and only for the functions above.
create or replace function toolcrib.enqueue_workflow(
    p_workflow text, p_workspace uuid, p_run uuid, p_id text, p_priority integer, p_delay_ms bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_queue  text;
begin
    select 'runs@' || nullif(w.home_node, '') into v_queue from toolcrib.workspaces w where w.id = p_workspace;
    if v_queue is null then
        -- The workspace was deleted: it has no home.
        return;
    end if;
    perform dbos.enqueue_workflow(
        p_workflow, v_queue,
        positional_args => array[to_json(p_workspace::text), to_json(p_run::text), to_json(v_queue)],
        workflow_id => p_id, app_version => 'runs-1', priority => p_priority,
        delay_until_epoch_ms => case when p_delay_ms > 0
            then (extract(epoch from clock_timestamp()) * 1000)::bigint + p_delay_ms end);
end
$$;

-- Stores a turn of the model: its message, its tokens and its events. Returns the position of the message.
create or replace function toolcrib.save_turn(p_workspace uuid, p_run uuid, p_epoch bigint, p_turn jsonb)
returns bigint
language plpgsql volatile
as $$
declare
    v_turn      record;
    v_event     record;
    v_position  bigint;
begin
    perform toolcrib.lock_run(p_workspace, p_run, p_epoch);
    select * into v_turn from jsonb_to_record(p_turn)
        as t (session_id uuid, message_id uuid, content text, metadata jsonb, input_tokens bigint, output_tokens bigint,
              context_tokens bigint, provider text, model text, cost numeric, unpriced integer, counts integer,
              events jsonb);
    if v_turn.message_id is not null then
        v_position := toolcrib.add_message(p_workspace, v_turn.session_id, v_turn.message_id, p_run, 'assistant',
                                           v_turn.content, v_turn.metadata);
    end if;
    update toolcrib.runs r set
        turns = r.turns + v_turn.counts, context_tokens = v_turn.context_tokens,
        -- The run has made progress. The calls of this turn follow, at their first attempt.
        attempts = case when v_turn.counts > 0 then 1 else r.attempts end,
        takeovers = case when v_turn.counts > 0 then 0 else r.takeovers end,
        provider_waits = case when v_turn.counts > 0 then 0 else r.provider_waits end
    where r.workspace_id = p_workspace and r.id = p_run;
    for v_event in select * from jsonb_to_recordset(v_turn.events) as e (type text, payload jsonb) loop
        perform toolcrib.append_event(p_workspace, v_turn.session_id, v_event.type, v_event.payload);
    end loop;
    perform toolcrib.count_model_usage(
        p_workspace, p_run, v_turn.provider, v_turn.model, v_turn.input_tokens, v_turn.output_tokens, v_turn.cost,
        v_turn.unpriced);
    return v_position;
end
$$;

-- Counts what a request to a model has used: for its run, for the runs that started it, and in the sums of the workspace.
-- The last step of a transaction's turn, because many turns update the same few sums. The caller has locked the run.
create or replace function toolcrib.count_model_usage(
    p_workspace uuid, p_run uuid, p_provider text, p_model text, p_input bigint, p_output bigint, p_cost numeric,
    p_unpriced integer
) returns void
language plpgsql volatile
as $$
declare
    v_run    record;
    v_above  uuid;
begin
    if p_input + p_output = 0 then
        return;
    end if;
    update toolcrib.runs r set
        input_tokens = r.input_tokens + p_input, output_tokens = r.output_tokens + p_output, cost = r.cost + p_cost,
        unpriced_turns = r.unpriced_turns + p_unpriced
    from toolcrib.sessions s
    where r.workspace_id = p_workspace and r.id = p_run and s.workspace_id = p_workspace and s.id = r.session_id
    returning r.parent_run_id, coalesce(r.agent_id::text, '') as agent, coalesce(s.root_session_id, s.id) as session_id,
              (r.input_tokens + r.output_tokens = p_input + p_output)::integer as is_first
    into v_run;
    -- The parent after the child, as everything that locks both does.
    v_above := v_run.parent_run_id;
    while v_above is not null loop
        update toolcrib.runs r set
            child_tokens = r.child_tokens + p_input + p_output, child_cost = r.child_cost + p_cost,
            child_unpriced = r.child_unpriced + p_unpriced
        where r.workspace_id = p_workspace and r.id = v_above
        returning r.parent_run_id into v_above;
    end loop;
    -- Always in this order, so that two turns never wait for each other.
    insert into toolcrib.model_usage as u
        (workspace_id, kind, key, day, runs, input_tokens, output_tokens, cost, unpriced_turns)
    select p_workspace, one.kind, one.key, (now() at time zone 'UTC')::date, v_run.is_first, p_input, p_output, p_cost,
           p_unpriced
    from (values (1, 'session', v_run.session_id::text), (2, 'model', concat(p_provider, '/', p_model)),
                 (3, 'agent', v_run.agent), (4, 'workspace', '')) as one (place, kind, key)
    order by one.place
    on conflict (workspace_id, kind, key, day) do update set
        runs = u.runs + excluded.runs, input_tokens = u.input_tokens + excluded.input_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens, cost = u.cost + excluded.cost,
        unpriced_turns = u.unpriced_turns + excluded.unpriced_turns;
end
$$;

-- Returns the budgets that a run is subject to, and what is used of them: those of the run and of the runs that started
-- it, of its session, its agent and its workspace. Reads few rows by their keys, however much was used.
create or replace function toolcrib.run_budgets(p_workspace uuid, p_run uuid)
returns table (scope text, name text, max_tokens numeric, max_cost numeric, tokens numeric, cost numeric)
language plpgsql stable
as $$
declare
    v_today  date := (now() at time zone 'UTC')::date;
    v_month  date := date_trunc('month', now() at time zone 'UTC')::date;
begin
    return query
        with recursive chain as (
            select r.*, 0 as height from toolcrib.runs r where r.workspace_id = p_workspace and r.id = p_run
            union all
            select r.*, c.height + 1 from chain c
            join toolcrib.runs r on r.workspace_id = p_workspace and r.id = c.parent_run_id
        ), used as (
            select c.height, c.parent_run_id is null as is_root, c.session_id::text as session_key,
                   c.agent_id::text as agent_key, a.name, a.rules, a.rules -> 'budgets' as budgets,
                   c.input_tokens + c.output_tokens + c.child_tokens as tokens, c.cost + c.child_cost as cost
            from chain c left join toolcrib.agents a on a.workspace_id = p_workspace and a.id = c.agent_id
        ), budgets (scope, name, limits, kind, key, since, tokens, cost) as (
            select case when u.height = 0 then 'run' else 'parent-run' end, u.name, u.rules, null, null, null::date,
                   u.tokens, u.cost
            from used u
            -- The session of a child run has no other run.
            union all
            select 'session', u.name, u.budgets -> 'session', 'session', u.session_key, '-infinity',
                   case when not u.is_root then u.tokens end, case when not u.is_root then u.cost end
            from used u
            union all
            select 'agent-day', u.name, u.budgets -> 'day', 'agent', u.agent_key, v_today, null, null
            from used u where u.height = 0
            union all
            select 'agent-month', u.name, u.budgets -> 'month', 'agent', u.agent_key, v_month, null, null
            from used u where u.height = 0
            union all
            select 'workspace-session', '', w.budgets -> 'session', 'session', u.session_key, '-infinity', null, null
            from used u cross join toolcrib.workspaces w where u.is_root and w.id = p_workspace
            union all
            select 'workspace-day', '', w.budgets -> 'day', 'workspace', '', v_today, null, null
            from toolcrib.workspaces w where w.id = p_workspace
            union all
            select 'workspace-month', '', w.budgets -> 'month', 'workspace', '', v_month, null, null
            from toolcrib.workspaces w where w.id = p_workspace
        )
        select b.scope, b.name, (b.limits ->> 'max_tokens')::numeric, (b.limits ->> 'max_cost')::numeric,
               coalesce(b.tokens, s.tokens, 0), coalesce(b.cost, s.cost, 0)
        from budgets b
        cross join lateral (
            select sum(m.input_tokens + m.output_tokens) as tokens, sum(m.cost) as cost from toolcrib.model_usage m
            where m.workspace_id = p_workspace and m.kind = b.kind and m.key = b.key and m.day >= b.since
        ) s
        where coalesce(b.limits ->> 'max_tokens', b.limits ->> 'max_cost') is not null;
end
$$;

-- Makes a waiting run ready, after a decision or an answer.
create or replace function toolcrib.set_run_ready(p_workspace uuid, p_run uuid) returns void
language plpgsql volatile
as $$
begin
    -- Waits for a run that is about to wait: otherwise it would miss both the decision and this update.
    perform from toolcrib.runs r where r.workspace_id = p_workspace and r.id = p_run for no key update;
    update toolcrib.runs r set state = 'ready'
    where r.workspace_id = p_workspace and r.id = p_run and r.state = 'waiting';
end
$$;

-- Makes the waiting run ready after any end of its paused call: decision, answer, expiry or cancellation.
create or replace function toolcrib.wake_run_on_decision() returns trigger
language plpgsql
as $$
begin
    perform toolcrib.set_run_ready(new.workspace_id, new.run_id);
    return null;
end
$$;
create or replace trigger wake_run_on_decision after update of state on toolcrib.paused_calls
    for each row when (new.run_id is not null and new.state not in ('pending', 'stale'))
    execute function toolcrib.wake_run_on_decision();

-- After the end of a child run: counts its turns and its time against its parent, which waits for it no longer. Locks
-- the parent after the child, as everything that locks both does. Runs at the same time share their time.
create or replace function toolcrib.end_child_run() returns trigger
language plpgsql
as $$
begin
    update toolcrib.runs p set
        child_turns = p.child_turns + new.turns + new.child_turns,
        active_ms = greatest(p.active_ms, new.parent_active_ms + new.active_ms)
    where p.workspace_id = new.workspace_id and p.id = new.parent_run_id and p.state <> 'ended';
    perform toolcrib.set_run_ready(new.workspace_id, new.parent_run_id);
    return null;
end
$$;
create or replace trigger end_child_run after update of state on toolcrib.runs
    for each row when (new.parent_run_id is not null and new.state = 'ended' and old.state <> 'ended')
    execute function toolcrib.end_child_run();

-- A child run that is deleted with its session before it ended leaves its call without a result.
create or replace function toolcrib.lose_child_run() returns trigger
language plpgsql
as $$
begin
    update toolcrib.tool_calls set state = 'unknown', ended_at = now(), error = jsonb_build_object(
        'code', 'INTERRUPTED', 'message', 'The session of the child run was deleted before the run ended.')
    where workspace_id = old.workspace_id and id = old.parent_call_id and ended_at is null;
    perform toolcrib.set_run_ready(old.workspace_id, old.parent_run_id);
    return null;
end
$$;
create or replace trigger lose_child_run after delete on toolcrib.runs
    for each row when (old.parent_run_id is not null and old.state <> 'ended')
    execute function toolcrib.lose_child_run();

-- Returns the unfinished descendants of a run, the deepest first: the order in which they are locked.
create or replace function toolcrib.child_runs(p_workspace uuid, p_run uuid) returns setof uuid
language plpgsql stable
as $$
begin
    return query
        with recursive below as (
            select r.id, r.state, 1 as depth from toolcrib.runs r
            where r.workspace_id = p_workspace and r.parent_run_id = p_run
            union all
            select r.id, r.state, b.depth + 1 from below b
            join toolcrib.runs r on r.workspace_id = p_workspace and r.parent_run_id = b.id
        )
        select b.id from below b where b.state <> 'ended' order by b.depth desc, b.id;
end
$$;

-- The processes that are alive: their last heartbeat is within the lease. In SQL, so that it becomes part of the query.
create or replace function toolcrib.live_processes(p_lease double precision) returns table (id uuid)
language sql stable
as $$
    select p.id from toolcrib.server_processes p where p.heartbeat_at > now() - make_interval(secs => p_lease)
$$;

create or replace function toolcrib.process_is_alive(p_process uuid, p_lease double precision) returns boolean
language plpgsql stable
as $$
begin
    return exists (select from toolcrib.live_processes(p_lease) p where p.id = p_process);
end
$$;
