"""SELECT statements for approvals: with the executable arguments, without them, and as pages."""

# Without the arguments and the result: these may have ten megabytes, and only the execution needs them.
_FACTS = """
    select a.id, a.workspace_id, a.call_id, a.session_id, a.run_id, a.user_id, a.agent_id, a.via, a.tool, a.shown,
           a.arguments_sha256, a.change_set_id, a.effects, a.rule, a.reason, a.isolation, a.offered, a.state, a.scope,
           a.decided_by, a.decided_at, a.denial, a.replaces, a.created_at, a.expires_at,
           g.name as agent_name, coalesce(u.full_name, u.email) as decided_by_name
"""
COLUMNS = f"{_FACTS}, a.changes"
WHOLE = "a.arguments, a.result"
JOINS = """
    left join lateral (select name from toolcrib.agents where workspace_id = a.workspace_id and id = a.agent_id
                       limit 1) g on true
    left join lateral (select full_name, email from toolcrib.users where id = a.decided_by limit 1) u on true
"""
SELECT = f"{COLUMNS} from toolcrib.approvals a {JOINS} "
SELECT_WHOLE = f"{COLUMNS}, {WHOLE} from toolcrib.approvals a {JOINS} "
_WANTED = """
    where a.workspace_id = %(workspace)s
      and (%(session)s::uuid is null or a.session_id = %(session)s)
      and (%(agent)s::uuid is null or a.agent_id = %(agent)s)
      and (%(after)s::uuid is null or a.id > %(after)s)
"""
_LISTED = f"{_FACTS}, toolcrib.in_brief(a.changes) as changes from toolcrib.approvals a {JOINS} {_WANTED}"
PAGE = f"{_LISTED} order by a.id limit %(limit)s"
PAGE_OF_OPEN = f"{_LISTED} and a.state = 'open' and a.expires_at > now() order by a.id limit %(limit)s"
