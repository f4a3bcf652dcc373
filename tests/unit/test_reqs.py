"""The requirement listing: which marks it finds, and when it exits with 1."""

from pathlib import Path

import pytest

from scripts.reqs import BadMark, Requirement, Showing, main, read_requirements, scan

PAGE = """# Requirements

### WS-1 Four mounts

Words about them.

- [ ] the whole

### WS-2 Path languages

- [ ] absolute paths
- [ ] @mount paths

### TL-10 A tool from `one function`

- [ ] the whole
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.md").write_text(PAGE)
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    return tmp_path


def write_tests(project: Path, text: str) -> Path:
    (project / "tests" / "unit" / "test_some.py").write_text("import pytest\n" + text)
    return project / "tests"


def found(tests: Path) -> list[Showing]:
    return list(scan(tests))


def at(name: str, requirement: str, part: str | None = None) -> Showing:
    return Showing(requirement, part, f"tests/unit/test_some.py::{name}")


def boxes(project: Path) -> list[str]:
    return [line for line in (project / "docs" / "requirements.md").read_text().splitlines() if line.startswith("- ")]


def test_ids_titles_and_parts_are_parsed_from_the_page(project: Path) -> None:
    assert read_requirements(project / "docs" / "requirements.md") == {
        "WS-1": Requirement("Four mounts", {"the whole": False}),
        "WS-2": Requirement("Path languages", {"absolute paths": False, "@mount paths": False}),
        "TL-10": Requirement("A tool from `one function`", {"the whole": False}),
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
def test_mark_that_cannot_be_parsed_is_an_error(project: Path, arguments: str) -> None:
    tests = write_tests(project, f"@pytest.mark.req({arguments})\ndef test_a(): ...\n")

    with pytest.raises(BadMark, match="test_a"):
        found(tests)
    assert main([], root=project) == 1


def test_a_requirement_is_shown_when_all_its_parts_are(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tests(project, '@pytest.mark.req("WS-2", part="@mount paths")\ndef test_a(): ...\n')
    assert main(["--write", "--quiet"], root=project) == 0
    assert boxes(project)[1:3] == ["- [ ] absolute paths", "- [x] @mount paths"]
    assert main(["WS-2"], root=project) == 1
    assert capsys.readouterr().err == "WS-2: tests do not show all of it (Path languages)\n"

    write_tests(
        project,
        '@pytest.mark.req("WS-2", part="@mount paths")\n@pytest.mark.req("WS-2", part="absolute paths")\n'
        "def test_a(): ...\n",
    )
    assert main(["--write", "WS-2"], root=project) == 0
    assert "1 of 3 requirements are shown by tests, and 2 of their 4 parts." in capsys.readouterr().out


@pytest.mark.parametrize("mark", ['"WS-2"', '"WS-2", part="all that there is"', '"WS-1", part="@mount paths"'])
def test_a_mark_with_an_unknown_part_shows_nothing(
    project: Path, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tests(project, f"@pytest.mark.req({mark})\ndef test_a(): ...\n")

    assert main([], root=project) == 0
    out = capsys.readouterr().out
    assert "shows no part of it: tests/unit/test_some.py::test_a" in out
    assert "0 of 3 requirements are shown by tests, and 0 of their 4 parts." in out


def test_listing_shows_each_part_with_its_tests(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tests(
        project,
        '@pytest.mark.req("TL-10")\n@pytest.mark.req("WS-2", part="@mount paths")\ndef test_a(): ...\n',
    )

    assert main(["--write"], root=project) == 0
    assert capsys.readouterr().out.splitlines() == [
        "WS-1   Four mounts  [not shown]",
        "         the whole  [no test]",
        "WS-2   Path languages  [not shown]",
        "         absolute paths  [no test]",
        "         @mount paths",
        "           tests/unit/test_some.py::test_a",
        "TL-10  A tool from `one function`",
        "         the whole",
        "           tests/unit/test_some.py::test_a",
        "1 of 3 requirements are shown by tests, and 2 of their 4 parts.",
    ]


def test_a_box_that_differs_from_the_tests_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tests(project, '@pytest.mark.req("WS-1")\ndef test_a(): ...\n')

    assert main(["--quiet"], root=project) == 1
    assert "WS-1, 'the whole' is not checked, and a test shows it" in capsys.readouterr().err
    assert main(["--quiet", "--write"], root=project) == 0
    write_tests(project, "def test_a(): ...\n")
    assert main(["--quiet"], root=project) == 1
    assert "WS-1, 'the whole' is checked, and no test shows it" in capsys.readouterr().err


def test_a_requirement_without_a_box_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = project / "docs" / "requirements.md"
    page.write_text(page.read_text() + "\n### TL-11 Nothing\n")

    assert main(["--quiet"], root=project) == 1
    assert "TL-11 has no box" in capsys.readouterr().err


def test_required_id_that_does_not_exist_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["WS-99"], root=project) == 1
    assert capsys.readouterr().err == "WS-99: not in docs/requirements.md\n"


def test_unknown_id_in_a_test_fails_even_when_no_id_is_required(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tests(project, '@pytest.mark.req("WS-99")\ndef test_a(): ...\n')

    assert main(["--quiet"], root=project) == 1
    assert "tests/unit/test_some.py::test_a: WS-99 is not in docs/requirements.md" in capsys.readouterr().err
