"""The requirement listing: which marks it finds, and when it ends with 1."""

from pathlib import Path

import pytest

from scripts.reqs import BadMark, Showing, main, read_titles, scan

TABLE = """
| Id | What it asks |
|---|---|
| WS-1 | Four mounts |
| WS-2 | Path languages |
| TL-10 | A tool from `one | function` |
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.md").write_text(TABLE)
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    return tmp_path


def write_tests(project: Path, text: str) -> Path:
    (project / "tests" / "unit" / "test_some.py").write_text("import pytest\n" + text)
    return project / "tests"


def found(tests: Path) -> list[Showing]:
    return list(scan(tests))


def at(name: str, requirement: str, part: str | None = None) -> Showing:
    return Showing(requirement, part, f"tests/unit/test_some.py::{name}")


def test_ids_and_titles_are_read_from_the_table(project: Path) -> None:
    titles = read_titles(project / "docs" / "requirements.md")

    assert titles == {
        "WS-1": "Four mounts",
        "WS-2": "Path languages",
        "TL-10": "A tool from `one | function`",
    }


def test_mark_on_a_function_names_several_ids_and_a_part(project: Path) -> None:
    tests = write_tests(project, '@pytest.mark.req("WS-1", "WS-2", part="reads")\nasync def test_a(): ...\n')

    assert found(tests) == [at("test_a", "WS-1", "reads"), at("test_a", "WS-2", "reads")]


@pytest.mark.parametrize(
    "pytestmark",
    ['pytest.mark.req("WS-1")', '[pytest.mark.long, pytest.mark.req("WS-1")]'],
    ids=["single", "list"],
)
def test_module_mark_counts_for_every_test_in_it(project: Path, pytestmark: str) -> None:
    tests = write_tests(
        project, f"pytestmark = {pytestmark}\ndef test_a(): ...\ndef test_b(): ...\ndef helper(): ...\n"
    )

    assert found(tests) == [at("test_a", "WS-1"), at("test_b", "WS-1")]


def test_class_mark_adds_to_those_of_its_tests(project: Path) -> None:
    tests = write_tests(
        project,
        '@pytest.mark.req("WS-1")\nclass TestA:\n    @pytest.mark.req("WS-2")\n    def test_b(self): ...\n',
    )

    assert found(tests) == [at("TestA::test_b", "WS-1"), at("TestA::test_b", "WS-2")]


def test_mark_on_one_parameter_set_counts(project: Path) -> None:
    tests = write_tests(
        project,
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("WS-2"))])\ndef test_a(x): ...\n',
    )

    assert found(tests) == [at("test_a", "WS-2")]


@pytest.mark.parametrize("arguments", ["", "WS_1", '"WS-1", because="x"', '"WS-1", part=PART'])
def test_mark_that_cannot_be_read_as_text_is_an_error(project: Path, arguments: str) -> None:
    tests = write_tests(project, f"@pytest.mark.req({arguments})\ndef test_a(): ...\n")

    with pytest.raises(BadMark, match="test_a"):
        found(tests)
    assert main([], root=project) == 1


def test_listing_shows_each_id_with_its_tests(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tests(project, '@pytest.mark.req("WS-2", part="reads")\ndef test_a(): ...\n')

    assert main([], root=project) == 0
    assert capsys.readouterr().out.splitlines() == [
        "WS-1   Four mounts  [no test]",
        "WS-2   Path languages",
        "         tests/unit/test_some.py::test_a  (reads)",
        "TL-10  A tool from `one | function`  [no test]",
        "1 of 3 requirements are shown by a test.",
    ]


def test_needed_id_that_no_test_shows_fails_and_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tests(project, '@pytest.mark.req("WS-2")\ndef test_a(): ...\n')

    assert main(["WS-2"], root=project) == 0
    assert main(["WS-1", "WS-2"], root=project) == 1
    assert capsys.readouterr().err == "WS-1: no test shows it (Four mounts)\n"


def test_needed_id_that_does_not_exist_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["WS-99"], root=project) == 1
    assert capsys.readouterr().err == "WS-99: not in docs/requirements.md\n"


def test_unknown_id_in_a_test_fails_even_when_nothing_is_needed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tests(project, '@pytest.mark.req("WS-99")\ndef test_a(): ...\n')

    assert main(["--quiet"], root=project) == 1
    assert "tests/unit/test_some.py::test_a: WS-99 is not in docs/requirements.md" in capsys.readouterr().err
