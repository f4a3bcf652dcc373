-- What waits for a person. Decisions are made in storage/approvals.py; here is what other functions need of them.

-- An agent speaks in its own sessions only: what it does must not appear in another's.
create or replace function toolcrib.require_session(p_workspace uuid, p_session uuid, p_agent uuid) returns void
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

-- What a person allowed has been done, in the transaction that does it. Its arguments are not kept any longer.
create or replace function toolcrib.carried_out(p_workspace uuid, p_approval uuid) returns void
language plpgsql volatile
as $$
declare
    v_set  uuid;
begin
    update toolcrib.approvals a set carried_at = now(), arguments = null, result = null
    where a.workspace_id = p_workspace and a.id = p_approval and a.state = 'allowed' and a.carried_at is null
    returning a.change_set_id into v_set;
    if not found then
        raise exception 'the approval was used already' using errcode = 'TC410';
    end if;
    delete from toolcrib.proposed_changes p where p.workspace_id = p_workspace and p.change_set_id = v_set;
end
$$;

-- The rules that decisions left behind for an agent, as the program reads them.
create or replace function toolcrib.grants_of(p_workspace uuid, p_agent uuid) returns jsonb
language plpgsql stable
as $$
declare
    v_grants  jsonb;
begin
    select jsonb_agg(jsonb_build_object('id', g.id, 'session_id', g.session_id, 'tool', g.tool, 'paths', g.paths,
                                        'commands', g.commands) order by g.id)
    into v_grants
    from toolcrib.grants g
    where g.workspace_id = p_workspace and g.agent_id = p_agent and g.revoked_at is null;
    return coalesce(v_grants, '[]');
end
$$;
