"""`toolcrib undo` of many files: its progress in a terminal, and nothing of it in a pipe."""

from collections.abc import Iterator

import pytest

from tests.acceptance.local_machine import Laptop, laptop

MANY = "mkdir many; for i in $(seq 1 1200); do echo $i > many/$i; done"


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


@pytest.mark.long
def test_terminal_shows_how_far_an_undo_has_come(own: Laptop) -> None:
    project = own.project()
    own.says("tool", "bash", "--command", MANY, at=project)

    with own.terminal("undo", "call", at=project) as terminal:
        terminal.until("Undone: 1,201 files.")
        assert terminal.end() == 0
    piped = own.says("redo", at=project)

    assert "Checked 0 of 1,201 files" in terminal.shown
    assert "… and 201 more" in terminal.shown
    assert "Redone: 1,201 files." in piped
    assert " of 1,201 files" not in piped
    assert len(list((project / "many").iterdir())) == 1_200
