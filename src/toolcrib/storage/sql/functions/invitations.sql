-- Accepts an invitation for a new user. The email address and the role are those of the invitation. It works once, until
-- it expires, and only while the inviting user is still an owner. Sets the workspace as the transaction's tenant, as
-- `enter_workspace` does, so that the user can be added as a member.
create or replace function toolcrib.accept_invitation(p_hash bytea, p_user uuid)
returns table (workspace_id uuid, email text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, toolcrib, pg_temp
as $$
declare
    v_found  toolcrib.invitations;
begin
    -- Locks the row before the checks: of two concurrent requests, the second finds it accepted.
    select * into v_found from toolcrib.invitations i where i.secret_hash = p_hash for update;
    if v_found.id is null or v_found.accepted_at is not null or v_found.revoked_at is not null
       or v_found.expires_at <= now()
       or not exists (select from toolcrib.members m join toolcrib.users u on u.id = m.user_id
                      where m.workspace_id = v_found.workspace_id and m.user_id = v_found.invited_by
                        and m.role = 'owner' and u.disabled_at is null) then
        return;
    end if;
    perform set_config('toolcrib.user', p_user::text, true),
            set_config('toolcrib.workspace', v_found.workspace_id::text, true);
    update toolcrib.invitations i set accepted_at = now(), accepted_by = p_user
    where i.workspace_id = v_found.workspace_id and i.id = v_found.id;
    return query select v_found.workspace_id, v_found.email, v_found.role;
end
$$;
