"""Insert thousands of paused calls as rows, as agents would create them."""

import json
from hashlib import sha256

import psycopg

from toolcrib.core.ids import new_id


def fill(owner_url: str, workspace_id: str, count: int) -> list[str]:
    """Insert pending approvals of one agent, each to write its own file. Returns their ids."""
    with psycopg.connect(owner_url) as connection:
        connection.execute("set search_path = toolcrib")
        owner = connection.execute("select user_id from members where workspace_id = %s", (workspace_id,)).fetchone()
        agent = connection.execute("select id from agents where workspace_id = %s", (workspace_id,)).fetchone()
        assert owner is not None
        assert agent is not None
        rows = [_row(workspace_id, owner[0], agent[0], number) for number in range(count)]
        with connection.cursor() as cursor:
            cursor.executemany(
                """
                insert into tool_calls (workspace_id, id, user_id, agent_id, tool, arguments, state)
                values (%(workspace)s, %(call)s, %(user)s, %(agent)s, 'touch', %(arguments)s, 'paused')
                """,
                rows,
            )
            cursor.executemany(
                """
                insert into paused_calls
                    (workspace_id, id, kind, call_id, user_id, agent_id, via, tool, arguments, input, arguments_sha256,
                     changes, effects, rule, reason, suggested_rule, other_rules, expires_at)
                values
                    (%(workspace)s, %(pause)s, 'approval', %(call)s, %(user)s, %(agent)s, 'rest', 'touch',
                     %(arguments)s, %(input)s, %(digest)s, '[]', %(effects)s, 'trust.guided.dangerous', 'Guided.',
                     %(suggested_rule)s, '[]', now() + interval '7 days')
                """,
                rows,
            )
    return [str(row["pause"]) for row in rows]


def _row(workspace_id: str, user: object, agent: object, number: int) -> dict[str, object]:
    arguments = json.dumps({"path": f"/waiting/{number}.txt"}, separators=(",", ":"))
    effects = {"reads": [], "writes": [f"/waiting/{number}.txt"], "runs": None, "contacts": []}
    return {
        "workspace": workspace_id,
        "pause": new_id(),
        "call": new_id(),
        "user": user,
        "agent": agent,
        "arguments": arguments,
        "input": arguments,
        "digest": sha256(arguments.encode()).digest(),
        "effects": json.dumps(effects),
        "suggested_rule": json.dumps({"tools": ["touch"], "paths": None, "commands": None}),
    }
