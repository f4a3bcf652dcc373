"""What a session counts of its messages' text."""

from uuid import uuid4

import psycopg

from tests.databases import DatabaseUrls


def test_a_session_counts_the_text_of_its_messages(database_urls: DatabaseUrls) -> None:
    calls = '{"tool_calls": [{"function": {"name": "ls"}}, {"function": {"name": "read"}}]}'
    messages = [("user", "Ünicode\nline", None), ("assistant", "", calls), ("summary", "short", None)]
    user, workspace, session, empty = (uuid4() for _ in range(4))
    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("set search_path to toolcrib")
        connection.execute(
            "insert into users (id, email, password_hash) values (%s, %s, 'x')", (user, f"{user}@example.com")
        )
        connection.execute("insert into workspaces (id, name, created_by) values (%s, 'w', %s)", (workspace, user))
        for each in (session, empty):
            connection.execute(
                "insert into sessions (workspace_id, id, created_by) values (%s, %s, %s)", (workspace, each, user)
            )
        for role, content, metadata in messages:
            connection.execute(
                "select add_message(%s, %s, %s, null, %s, %s, %s)",
                (workspace, session, uuid4(), role, content, metadata),
            )
        counted = connection.execute(
            "select text_bytes, text_lines from sessions where workspace_id = %s order by text_bytes desc", (workspace,)
        ).fetchall()
        [text] = connection.execute(
            """
            select string_agg(message_text(role, content, metadata, created_at), '' order by position)
            from messages where workspace_id = %s
            """,
            (workspace,),
        ).fetchone() or [""]
        connection.rollback()

    assert text.endswith(" UTC\n\nCalled: ls, read\n\n")
    assert counted == [(len(text.encode()), text.count("\n")), (0, 0)]
