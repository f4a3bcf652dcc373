"""Planting of defects: where they go, that they come out again, and which lines count as changed."""

import contextlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.planted.defects import Defect, NoLongerApplies, load_defects, plant, read_sources
from scripts.planted.planting import Checkout
from scripts.planted.reach import Recording, run_at_call, write_recording

ROOT = Path(__file__).parent.parent.parent
LIMITS = """\
MAX_LINES = 300


class Cut:
    def fits(self, lines: int) -> bool:
        return lines < MAX_LINES

    def room(self, lines: int) -> int:
        if lines < MAX_LINES:
            return (
                MAX_LINES
                - lines
            )
        return 0
"""
PATH = "src/toolcrib/core/limits.py"
SQL = "src/toolcrib/storage/sql/functions/limits.sql"
SOURCES = {PATH: LIMITS, SQL: "create function a\nwhere one = two\ncreate function b\nwhere one = two\n"}
OFF_BY_ONE = Defect(
    name="off-by-one",
    promise="A text of 300 lines is cut",
    symbol="toolcrib.core.limits:Cut.fits",
    replace="lines < MAX_LINES",
    by="lines <= MAX_LINES",
)


def test_a_defect_is_planted_in_the_source_of_its_symbol_only() -> None:
    planted = plant(OFF_BY_ONE, SOURCES)

    assert planted.path == PATH
    assert planted.text == LIMITS.replace("return lines < MAX_LINES", "return lines <= MAX_LINES")
    assert planted.lines == {6}


def test_a_defect_survives_the_move_of_its_module() -> None:
    moved = {"src/toolcrib/core/sizes.py": LIMITS, "src/toolcrib/core/limits.py": "class Other:\n    pass\n"}

    assert plant(OFF_BY_ONE, moved).path == "src/toolcrib/core/sizes.py"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replace": "lines > MAX_LINES"}, "occurs 0 times"),
        ({"symbol": "toolcrib.core.limits:Cut"}, "occurs 2 times"),
        ({"symbol": "toolcrib.core.limits:Cut.gone"}, "no module defines it"),
        ({"by": "lines <"}, "is no Python"),
        ({"by": "lines < MAX_LINES"}, "by itself"),
        ({"symbol": None, "file": SQL, "replace": "one = two"}, "occurs 2 times"),
        ({"symbol": None, "file": SQL, "replace": "one = two", "near": "create"}, "2 lines contain"),
        ({"symbol": None, "file": "gone.sql", "replace": "one = two"}, "is not there"),
    ],
)
def test_a_defect_whose_place_is_not_there_once_no_longer_applies(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoLongerApplies, match=reason):
        plant(replace(OFF_BY_ONE, **changes), SOURCES)


def test_a_symbol_that_two_other_modules_define_is_ambiguous() -> None:
    with pytest.raises(NoLongerApplies, match=r"one\.py, .*two\.py defines it"):
        plant(OFF_BY_ONE, {"src/toolcrib/one.py": LIMITS, "src/toolcrib/two.py": LIMITS})


def test_a_line_nearby_says_which_statement_of_sql_is_meant() -> None:
    second = replace(OFF_BY_ONE, symbol=None, file=SQL, near="function b", replace="one = two", by="true")

    planted = plant(second, SOURCES)

    assert planted.text == "create function a\nwhere one = two\ncreate function b\nwhere true\n"
    assert planted.lines == {4}


def test_a_defect_inside_a_long_statement_is_reached_by_all_its_lines() -> None:
    assert run_at_call(PATH, frozenset({12}), SOURCES) == {PATH: 0b1111 << 10}


def test_a_value_of_a_module_is_reached_where_it_is_named() -> None:
    assert run_at_call(PATH, frozenset({1}), SOURCES) == {PATH: 1 << 6 | 1 << 9 | 1 << 11}


def test_tests_that_run_a_line_themselves_come_before_those_whose_fixture_does(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "7.contexts").write_text(
        '{"context": "7.0", "fixture": "tests::server"}\n'
        '{"context": "7.1", "test": "wide", "fixtures": []}\n'
        '{"context": "7.2", "test": "specific", "fixtures": []}\n'
        '{"context": "7.3", "test": "served", "fixtures": ["tests::server"]}\n'
        '{"context": "7.4", "test": "other", "fixtures": []}\n'
    )
    # Line 1 ran because a module was imported, in the first test by chance.
    (raw / "8.lines").write_text("7.0\tcore/limits.py\t6\n7.4\tcore/limits.py\t1,9\n")
    (raw / "9.lines").write_text("7.1\tcore/limits.py\t6,9\n7.2\tcore/limits.py\t6\n")
    write_recording(raw, SOURCES, tmp_path / "lines.sqlite")

    recording = Recording(tmp_path / "lines.sqlite")

    assert [test.name for test in recording.reaching(OFF_BY_ONE)] == ["specific", "wide", "served"]


def test_the_sound_text_returns_after_an_interruption_and_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    path.write_text(LIMITS)
    planted = plant(OFF_BY_ONE, SOURCES)

    with contextlib.suppress(KeyboardInterrupt), Checkout(tmp_path, tmp_path / "notes").planted(planted):
        assert path.read_text() == planted.text
        raise KeyboardInterrupt
    assert path.read_text() == LIMITS

    abandoned = Checkout(tmp_path, tmp_path / "notes").planted(planted)
    abandoned.__enter__()
    Checkout(tmp_path, tmp_path / "notes").restore()
    assert path.read_text() == LIMITS


def test_a_checkout_with_changes_is_not_clean(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    checkout = Checkout(tmp_path, tmp_path / "notes")
    assert checkout.is_clean()

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "new.py").touch()

    assert not checkout.is_clean()


def test_every_planted_defect_applies() -> None:
    sources = read_sources(ROOT)
    for defect in load_defects(ROOT / "tests" / "planted" / "defects.toml"):
        plant(defect, sources)
