"""Realistic sessions, played end to end: how often a person is asked, and whether undo and redo leave a difference."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.local_machine import Model
from tests.sessions.conftest import ROW
from tests.sessions.project_builder import build_project
from tests.sessions.scenario import Session
from tests.sessions.scenarios import SESSIONS, TASK
from tests.sessions.session_player import Played, play
from toolcrib.sdk.toolcrib import TrustLevel

Record = Callable[[str, object], None]

# How often the person of the 30-call task may be asked for approval.
MOST_ASKED: dict[TrustLevel, int] = {"guided": 8, "review": 3}


def _marks(session: Session, trust: TrustLevel) -> tuple[pytest.MarkDecorator, ...]:
    """The gate plays the quick sessions once. Trust changes what is asked, and hardly what is undone."""
    return () if session.quick and trust == "review" else (pytest.mark.long,)


def played(session: Session, trust: TrustLevel, model: Model, base: Path, record: Record) -> Played:
    """Play a session, and check that undo and redo leave no difference."""
    person = build_project(base, preparation=session.preparation)
    if session.furnish is not None:
        session.furnish(person.project)
    found = play(session, person, model, trust=trust)
    asked, figures = len(found.approvals), (f"{found.seconds:.1f}", f"{found.undo_seconds:.1f}")
    kinds = len(found.undo_differences), len(found.redo_differences)
    record(ROW, (session.name, trust, session.calls, asked, found.questions, *figures, *kinds))
    assert len(found.failed) == sum(turn.fails for turn in session.turns), found.failed
    assert found.damage == []
    assert found.undo_differences == [], found.conflicts
    assert bool(found.conflicts) == bool(session.stays), found.conflicts
    assert found.redo_differences == []
    return found


@pytest.mark.parametrize(
    ("session", "trust"),
    [
        pytest.param(session, trust, id=f"{session.name}-{trust}", marks=_marks(session, trust))
        for session in SESSIONS
        for trust in MOST_ASKED
    ],
)
def test_undo_and_redo_leave_no_difference(
    session: Session, trust: TrustLevel, model: Model, tmp_path: Path, record_property: Record
) -> None:
    played(session, trust, model, tmp_path, record_property)


@pytest.mark.parametrize("trust", ["guided", "review"])
def test_a_task_of_30_calls_asks_seldom(
    trust: TrustLevel, model: Model, tmp_path: Path, record_property: Record
) -> None:
    found = played(TASK, trust, model, tmp_path, record_property)

    assert TASK.calls == 30
    # It is there to be answered, at every trust.
    assert found.questions == 1
    assert len(found.approvals) <= MOST_ASKED[trust], found.approvals
