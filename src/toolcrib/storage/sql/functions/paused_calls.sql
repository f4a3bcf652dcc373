-- Paused calls and grants, as far as other functions need them. storage/paused_calls.py stores decisions.

-- Raises TC404 unless the session exists and is the agent's: its calls must not appear in another agent's session.
create or replace function toolcrib.check_session(p_workspace uuid, p_session uuid, p_agent uuid) returns void
language plpgsql volatile
as $$
declare
    v_agent  uuid;
begin
    select s.agent_id into v_agent from toolcrib.sessions s where s.workspace_id = p_workspace and s.id = p_session;
    if not found or (p_agent is not null and v_agent is distinct from p_agent) then
        raise exception 'there is no such session' using errcode = 'TC404';
    end if;
end
$$;

-- Marks an approval as used, in the transaction that executes the call. Also ends a stale approval whose new effect is
-- impossible. Deletes the arguments.
create or replace function toolcrib.mark_resumed(p_workspace uuid, p_pause uuid) returns void
language plpgsql volatile
as $$
declare
    v_set  uuid;
begin
    update toolcrib.paused_calls p set resumed_at = now(), arguments = null, planned_result = null
    where p.workspace_id = p_workspace and p.id = p_pause and p.state in ('approved', 'stale')
      and p.resumed_at is null
    returning p.change_set_id into v_set;
    if not found then
        raise exception 'the approval was used already' using errcode = 'TC410';
    end if;
    delete from toolcrib.proposed_changes p where p.workspace_id = p_workspace and p.change_set_id = v_set;
    -- A committed set has its state already.
    update toolcrib.change_sets s set state = 'dropped'
    where s.workspace_id = p_workspace and s.id = v_set and s.state = 'proposed';
end
$$;

-- Shortens changes for a list of paused calls, so that a page of hundreds is not hundreds of megabytes. A long list has
-- the first 20 changes without their diffs, and the number of the others.
create or replace function toolcrib.summarize_changes(p_changes jsonb) returns jsonb
language plpgsql immutable strict
as $$
declare
    v_brief  jsonb;
    v_count  integer := jsonb_array_length(p_changes);
begin
    if octet_length(p_changes::text) <= 20000 then
        return p_changes;
    end if;
    select jsonb_agg((c.value - 'diff') || '{"diff_omitted": true}' order by c.ordinality) into v_brief
    from jsonb_array_elements(p_changes) with ordinality c where c.ordinality <= 20;
    if v_count > 20 then
        v_brief := v_brief || jsonb_build_object(
            'path', null, 'change', 'omitted',
            -- The last change may itself be a number of others.
            'count', v_count - 20 + greatest(coalesce((p_changes -> -1 ->> 'count')::integer - 1, 0), 0));
    end if;
    return v_brief;
end
$$;

-- Expires the paused calls of a deleted session. The cleanup of expired ones then ends them. Skips rows that a decision
-- has locked: that decision finds that the session is gone.
create or replace function toolcrib.expire_paused_calls() returns trigger
language plpgsql
as $$
begin
    update toolcrib.paused_calls p set expires_at = now()
    where (p.workspace_id, p.id) in (
        select o.workspace_id, o.id from toolcrib.paused_calls o
        where o.workspace_id = old.workspace_id and o.session_id = old.id and o.state = 'pending'
        for update skip locked);
    return null;
end
$$;
create or replace trigger expire_paused_calls after delete on sessions
    for each row execute function expire_paused_calls();

-- Puts an approved call that no run executes, or a stale one, into the queue of its workspace's node: after the decision,
-- and when its claim is released. Its place is the number of the workspace's calls that are already there.
create or replace function toolcrib.enqueue_approved_call() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_rank  integer;
begin
    select count(*) into v_rank from toolcrib.paused_calls p
    where p.workspace_id = new.workspace_id and p.state in ('approved', 'stale') and p.resumed_at is null;
    new.queue_entry := old.queue_entry + 1;
    perform toolcrib.enqueue_workflow(
        'resume_call', new.workspace_id, new.id, 'call/' || new.id || '/' || new.queue_entry, v_rank, 0);
    return new;
end
$$;
create or replace trigger enqueue_approved_call before update of state, claimed_by on toolcrib.paused_calls
    for each row when (new.claimed_by is null and new.resumed_at is null
                       and (new.state = 'stale' or (new.state = 'approved' and new.run_id is null)))
    execute function toolcrib.enqueue_approved_call();

-- Returns the active grants of an agent as JSON.
create or replace function toolcrib.agent_grants(p_workspace uuid, p_agent uuid) returns jsonb
language plpgsql stable
as $$
declare
    v_grants  jsonb;
begin
    select jsonb_agg(jsonb_build_object('id', g.id, 'session_id', g.session_id, 'tools', g.tools, 'paths', g.paths,
                                        'commands', g.commands, 'hosts', g.hosts, 'arguments', g.arguments,
                                        'access', g.access)
                     order by g.id)
    into v_grants
    from toolcrib.grants g
    where g.workspace_id = p_workspace and g.agent_id = p_agent and g.revoked_at is null;
    return coalesce(v_grants, '[]');
end
$$;
