-- Appends events in the transaction of the change that they report, and checks who may receive them.

-- Appends an event and returns its sequence number. The session's row stays locked until the transaction ends, so
-- numbers are committed in order and without gaps.
create or replace function toolcrib.append_event(p_workspace uuid, p_session uuid, p_type text, p_payload jsonb)
returns bigint
language plpgsql volatile
as $$
declare
    v_seq      bigint;
    v_message  uuid;
begin
    -- Events of a call name the message that made it: the latest of the model, if it contains the call.
    if p_type in ('tool-start', 'tool-result', 'tool-confirm', 'pause-ended', 'child-run') then
        select m.id into v_message
        from (select l.id, l.metadata from toolcrib.messages l
              where l.workspace_id = p_workspace and l.session_id = p_session and l.role = 'assistant'
              order by l.position desc limit 1) m
        where m.metadata -> 'tool_calls' @> jsonb_build_array(jsonb_build_object('call_id', p_payload ->> 'toolId'));
        if v_message is not null then
            p_payload := p_payload || jsonb_build_object('messageId', v_message);
        end if;
    end if;
    update toolcrib.sessions set last_seq = last_seq + 1
    where workspace_id = p_workspace and id = p_session
    returning last_seq into v_seq;
    if v_seq is null then
        raise exception 'Session % not found in this workspace.', p_session using errcode = 'TC404';
    end if;
    insert into toolcrib.events (workspace_id, session_id, seq, type, payload)
    values (p_workspace, p_session, v_seq, p_type, p_payload);
    return v_seq;
end
$$;

-- Returns the positions of subscribers who are not members of their workspace, or whose token is revoked.
create or replace function toolcrib.non_members(p_watchers jsonb) returns setof integer
language plpgsql stable
as $$
begin
    return query
    select w.position::integer - 1
    from rows from (jsonb_to_recordset(p_watchers)
                    as (user_id uuid, token_version integer, workspace_id uuid, agent_id uuid))
         with ordinality as w (user_id, token_version, workspace_id, agent_id, position)
    where not exists (
        select from toolcrib.members m join toolcrib.users u on u.id = m.user_id
        where m.workspace_id = w.workspace_id and m.user_id = w.user_id
          and u.disabled_at is null and u.token_version = coalesce(w.token_version, u.token_version)
    ) or (w.agent_id is not null and not exists (
        select from toolcrib.agents a
        where a.workspace_id = w.workspace_id and a.id = w.agent_id and a.deleted_at is null
    ));
end
$$;

-- Redeems a ticket: returns its user, its workspace, and when the connection must end. A ticket works once.
create or replace function toolcrib.redeem_ticket(p_hash bytea)
returns table (user_id uuid, token_version integer, workspace_id uuid, connection_expires_at timestamptz)
language sql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
    delete from connection_tickets t where t.secret_hash = p_hash
    returning t.user_id, t.token_version, t.workspace_id,
              case when t.expires_at > now() then t.connection_expires_at end
$$;
