-- Requests with an `Idempotency-Key`. The server calls these functions before the request has a workspace.

-- Claims a key for an attempt. The outcome is `new`, `retry` (an earlier attempt is lost and committed nothing),
-- `committed` (it is lost and has committed something), `running` (it is alive), `done`, `reused` (another request) or
-- `full` (the caller has too many keys). An attempt of the process itself is alive if `p_at_work` says so: its claim
-- stays if the database was away when it ended.
create or replace function toolcrib.claim_idempotency_key(
    p_user uuid, p_token_version integer, p_caller uuid, p_key bytea, p_requests bytea[], p_effect uuid,
    p_process uuid, p_lease double precision, p_most integer, p_at_work boolean
) returns table (outcome text, effect uuid, attempt integer, answer bytea)
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_key  toolcrib.idempotency_keys;
begin
    if not exists (select from toolcrib.users u where u.id = p_user and u.disabled_at is null
                   and u.token_version = coalesce(p_token_version, u.token_version)) then
        raise exception 'token is no longer valid' using errcode = 'TC401';
    end if;
    loop
        begin
            select * into v_key from toolcrib.idempotency_keys k
            where k.user_id = p_user and k.caller_id = p_caller and k.key_hash = p_key
            for update nowait;
        exception when lock_not_available then
            -- An attempt commits just now. Waiting would hold a connection that it may need.
            return query select 'running', p_effect, 0, null::bytea;
            return;
        end;
        exit when found and v_key.created_at >= now() - interval '24 hours';
        if found then
            delete from toolcrib.idempotency_keys k
            where k.user_id = p_user and k.caller_id = p_caller and k.key_hash = p_key;
        end if;
        if exists (select from toolcrib.idempotency_keys k
                   where k.user_id = p_user and k.caller_id = p_caller offset p_most - 1 limit 1) then
            return query select 'full', p_effect, 0, null::bytea;
            return;
        end if;
        insert into toolcrib.idempotency_keys (user_id, caller_id, key_hash, request_hash, effect_id, process_id)
        values (p_user, p_caller, p_key, p_requests[1], p_effect, p_process)
        on conflict do nothing;
        if found then
            return query select 'new', p_effect, 1, null::bytea;
            return;
        end if;
    end loop;

    if v_key.request_hash <> all (p_requests) then
        return query select 'reused', v_key.effect_id, v_key.attempt, null::bytea;
    elsif v_key.state = 'done' then
        return query select 'done', v_key.effect_id, v_key.attempt, v_key.answer;
    elsif v_key.claimed_at > now() - interval '1 hour'
          and ((v_key.process_id = p_process and p_at_work)
               or (v_key.process_id <> p_process and toolcrib.process_is_alive(v_key.process_id, p_lease))) then
        return query select 'running', v_key.effect_id, v_key.attempt, null::bytea;
    else
        update toolcrib.idempotency_keys k
        set attempt = v_key.attempt + 1, process_id = p_process, claimed_at = now()
        where k.user_id = p_user and k.caller_id = p_caller and k.key_hash = p_key;
        return query select case v_key.state when 'committed' then 'committed' else 'retry' end, v_key.effect_id,
                            v_key.attempt + 1, null::bytea;
    end if;
end
$$;

-- Notes in the transaction of an effect that there is one. Raises TC422 if another attempt has begun meanwhile, also one
-- that has ended and released the key: the id of the effect tells its claims apart.
create or replace function toolcrib.mark_idempotency_key(
    p_user uuid, p_caller uuid, p_key bytea, p_effect uuid, p_attempt integer
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_attempt  integer;
begin
    if pg_current_xact_id_if_assigned() is null then
        return;
    end if;
    update toolcrib.idempotency_keys k set state = case k.state when 'running' then 'committed' else k.state end
    where k.user_id = p_user and k.caller_id = p_caller and k.key_hash = p_key and k.effect_id = p_effect
    returning k.attempt into v_attempt;
    if v_attempt is distinct from p_attempt then
        raise exception 'another attempt has begun' using errcode = 'TC422';
    end if;
end
$$;

-- Ends an attempt. `save` stores the answer; `release` forgets the key unless something was committed; `abandon` lets
-- the next attempt find out what happened; `renew` gives the effect another id. Returns whether it did.
create or replace function toolcrib.end_idempotency_attempt(
    p_user uuid, p_caller uuid, p_key bytea, p_effect uuid, p_attempt integer, p_action text, p_answer bytea,
    p_next_effect uuid
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
begin
    if p_action = 'release' then
        delete from toolcrib.idempotency_keys k
        where k.user_id = p_user and k.caller_id = p_caller and k.key_hash = p_key and k.effect_id = p_effect
          and k.attempt = p_attempt and k.state = 'running';
    else
        update toolcrib.idempotency_keys k
        set state = case p_action when 'save' then 'done' else k.state end,
            answer = case p_action when 'save' then p_answer end,
            process_id = case p_action when 'abandon' then null else k.process_id end,
            effect_id = case p_action when 'renew' then p_next_effect else k.effect_id end
        where k.user_id = p_user and k.caller_id = p_caller and k.key_hash = p_key and k.effect_id = p_effect
          and k.attempt = p_attempt and k.state <> 'done';
    end if;
    return found;
end
$$;
