-- Every upgrade creates all functions again. It drops the existing ones first, so that no old signature is left beside a
-- new one. A function that a policy or a default depends on stays, and is replaced in place.

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
