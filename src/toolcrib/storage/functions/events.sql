-- The session's next number, in the transaction of the fact it tells.

create or replace function toolcrib.append_event(p_workspace uuid, p_session uuid, p_type text, p_payload jsonb)
returns bigint
language plpgsql volatile
as $$
declare
    v_seq  bigint;
begin
    update toolcrib.sessions set last_seq = last_seq + 1
    where workspace_id = p_workspace and id = p_session
    returning last_seq into v_seq;
    insert into toolcrib.events (workspace_id, session_id, seq, type, payload)
    values (p_workspace, p_session, v_seq, p_type, p_payload);
    return v_seq;
end
$$;
