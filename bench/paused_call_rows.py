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
                insert into approvals
                    (workspace_id, id, call_id, user_id, agent_id, via, tool, arguments, shown, arguments_sha256,
                     effects, rule, reason, offered, expires_at)
                values
                    (%(workspace)s, %(approval)s, %(call)s, %(user)s, %(agent)s, 'rest', 'touch', %(arguments)s,
                     %(shown)s, %(digest)s, %(effects)s, 'trust.guided.dangerous', 'Guided.', %(offered)s,
                     now() + interval '7 days')
                """,
                rows,
            )
    return [str(row["approval"]) for row in rows]


def _row(workspace_id: str, user: object, agent: object, number: int) -> dict[str, object]:
    arguments = json.dumps({"path": f"/waiting/{number}.txt"}, separators=(",", ":"))
    effects = {"reads": [], "writes": [f"/waiting/{number}.txt"], "runs": None, "contacts": []}
    return {
        "workspace": workspace_id,
        "approval": new_id(),
        "call": new_id(),
        "user": user,
        "agent": agent,
        "arguments": arguments,
        "shown": arguments,
        "digest": sha256(arguments.encode()).digest(),
        "effects": json.dumps(effects),
        "offered": json.dumps({"tool": "touch", "paths": None, "commands": None}),
    }
