"""``toolcrib log``: who made a change."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from toolcrib.cli.log import AuthorNames, record_lines
from toolcrib.client import AuditRecordOut
from toolcrib.core.ids import new_id

AGENT, SESSION, CHILD = new_id(), new_id(), new_id()
NAMES = AuthorNames({AGENT: "coder"}, {CHILD: "Count the files"})


def record(agent_id: UUID | None, session_id: UUID) -> AuditRecordOut:
    return AuditRecordOut(
        position=1,
        id=new_id(),
        kind="call",
        created_at=datetime.now(UTC),
        user_id=new_id(),
        agent_id=agent_id,
        session_id=session_id,
        run_id=None,
        call_id=new_id(),
        via="run",
        tool="write",
        decision="allow",
        rule="trust",
        decided_by=None,
        arguments={"path": "/a.txt"},
        outcome="done",
        error_code=None,
        files=[],
        hosts=[],
        isolation=None,
        duration_us=1,
    )


@pytest.mark.parametrize(
    ("agent_id", "session_id", "shown"),
    [
        (AGENT, SESSION, "by coder, call"),
        (AGENT, CHILD, 'by coder in its child run "Count the files", call'),
        (new_id(), SESSION, "by an agent, call"),
        (None, SESSION, "by you, call"),
    ],
)
def test_a_change_names_its_author_and_the_child_run(agent_id: UUID | None, session_id: UUID, shown: str) -> None:
    assert shown in record_lines(record(agent_id, session_id), NAMES)[1].plain
