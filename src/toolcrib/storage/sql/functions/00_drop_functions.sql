-- Functions are laid anew at every upgrade. Those of an earlier program go first, so that no old form of one is left
-- beside the new; what a policy or a default stands on stays, and is replaced in place.

do $$
declare
    v_function  regprocedure;
begin
    for v_function in
        select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'toolcrib'
    loop
        begin
            execute format('drop function %s', v_function);
        exception when dependent_objects_still_exist then
            null;
        end;
    end loop;
end
$$;
