"""Campaigns run every test that the gate leaves out, once, and a run of them is bounded, counted and continued."""

import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from scripts.campaigns import CAMPAIGNS, Campaign, Outcome, Result, Runner, commands_of, counts, paths_of_others, table

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"\bmark\.(\w+)")


def is_selected(expression: str, marks: set[str]) -> bool:
    return Expression.compile(expression).evaluate(lambda name, /, **_: name in marks)


def campaigns_of(file: str, mark: str) -> list[str]:
    """The campaigns that run the tests of a file with a mark."""
    return [
        campaign.name
        for campaign in CAMPAIGNS
        if campaign.tests is not None
        and is_selected(campaign.tests.marks, {mark})
        and any(Path(file).is_relative_to(path) for path in campaign.tests.paths)
        and not any(Path(file).is_relative_to(path) for path in paths_of_others(campaign, CAMPAIGNS))
    ]


def test_every_test_that_the_gate_leaves_out_is_in_one_campaign() -> None:
    [gate] = re.findall(r"^GATE := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    left_out = {
        mark for mark in (line.partition(":")[0] for line in options["markers"]) if not is_selected(gate, {mark})
    }
    # The peers bring their own packages.
    folders = [path for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "peers"]
    files = [path for folder in folders for path in folder.rglob("test_*.py")]
    marked = [
        (str(path.relative_to(ROOT)), mark)
        for path in files
        for mark in sorted(set(MARK.findall(path.read_text(encoding="utf-8"))) & left_out)
    ]

    assert set(re.findall(r"not (\w+)", gate)) == left_out
    owners = {(file, mark): campaigns_of(file, mark) for file, mark in marked}
    assert {key: names for key, names in owners.items() if len(names) != 1} == {}
    with_tests = {campaign.name for campaign in CAMPAIGNS if campaign.tests is not None}
    assert {name for names in owners.values() for name in names} == with_tests


def test_paths_of_campaigns_exist() -> None:
    paths = [path for campaign in CAMPAIGNS if campaign.tests is not None for path in campaign.tests.paths]

    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_campaign_leaves_the_paths_of_others_out() -> None:
    commands = {campaign.name: " ".join(commands_of(campaign, CAMPAIGNS)[-1]) for campaign in CAMPAIGNS}

    assert commands["kills"].endswith(
        " --ignore=tests/faults/test_database_faults.py --ignore=tests/faults/test_outages.py tests/faults"
    )
    assert " --ignore=tests/faults " in commands["long"]
    assert commands["redteam"].endswith(" tests/redteam tests/adversarial")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("===== 3 passed, 12 deselected, 1 warning in 75.12s (0:01:15) =====\n", (3, 3)),
        ("= 2 failed, 3 passed, 1 error in 0.50s =\n", (6, 3)),
        (
            "= 1 passed in 9.00s =\nweb page:    20 tried /      20 held\nall:      1,234 tried /   1,230 held\n",
            (1234, 1230),
        ),
        ("\n200 tried, 200 held\n= 1 passed in 1.00s =\n", (200, 200)),
        ("wheel: ok\n", (None, None)),
    ],
)
def test_counts_are_those_of_the_campaign_or_of_pytest(output: str, expected: tuple[int | None, int | None]) -> None:
    assert counts(output) == expected


def shell(name: str, script: str, *, minutes: float = 1, as_root: bool = False) -> Campaign:
    return Campaign(name, "a test", minutes, commands=(("sh", "-c", script, "sh"),), as_root=as_root)


def outcomes(results: list[Result]) -> dict[str, Outcome]:
    return {result.name: result.outcome for result in results}


@pytest.fixture
def interrupts() -> Iterator[None]:
    """A shell that starts the tests in the background tells them, and all that they start, to ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_each_campaign_is_run_and_bounded_and_the_table_says_how_it_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    campaigns = (
        shell("good", "echo seen; echo 5 tried, 5 held"),
        shell("bad", "echo 5 tried, 4 held; exit 1"),
        shell("slow", "echo begun; exec sleep 1000", minutes=0.001),
        shell("root", "true", as_root=True),
        shell("other", "exit 1"),
    )

    results = list(Runner(campaigns, tmp_path, tmp_path).run(skip=["other"]))

    expected = {
        "good": Outcome.PASSED,
        "bad": Outcome.FAILED,
        "slow": Outcome.TIMED_OUT,
        "root": Outcome.PASSED if os.geteuid() == 0 else Outcome.NOT_RUN,
        "other": Outcome.LEFT_OUT,
    }
    assert outcomes(results) == expected
    assert [result.name for result in results if not result.is_good] == [
        name for name, outcome in expected.items() if outcome not in (Outcome.PASSED, Outcome.LEFT_OUT)
    ]
    lines = [re.sub(r" +", " ", line) for line in table(results).splitlines()]
    assert lines[0] == "campaign tried held seconds result"
    assert re.fullmatch(r"good 5 5 \d+ passed", lines[1])
    assert re.fullmatch(r"bad 5 4 \d+ FAILED", lines[2])
    assert re.fullmatch(r"slow – – \d+ TIMED OUT", lines[3])
    assert "seen" in capfd.readouterr().out
    assert (tmp_path / "slow.log").read_text() == "begun\n"


def test_campaigns_that_find_no_time_are_not_run(tmp_path: Path) -> None:
    results = list(Runner((shell("late", "true"),), tmp_path, tmp_path).run(hours=-1))

    assert outcomes(results) == {"late": Outcome.NOT_RUN}


def test_campaign_that_needs_to_be_named_runs_only_then_and_gets_the_flags(tmp_path: Path) -> None:
    campaign = Campaign(
        "real", "a test", 1, commands=(("true",), ("sh", "-c", 'echo "$@"', "sh")), only_named_because="builds"
    )
    runner = Runner((shell("other", "true"), campaign), tmp_path, tmp_path)

    assert outcomes(list(runner.run())) == {"other": Outcome.PASSED, "real": Outcome.LEFT_OUT}
    assert outcomes(list(runner.run(only=["real"], flags=["--seed", "5"]))) == {"real": Outcome.PASSED}
    assert (tmp_path / "real.log").read_text() == "--seed 5\n"


def test_what_passed_on_a_commit_is_not_run_again(tmp_path: Path) -> None:
    checkout, folder, runs = tmp_path / "checkout", tmp_path / "folder", tmp_path / "runs"
    campaigns = (
        shell("good", f"echo good >> {runs}; echo 7 tried, 7 held"),
        shell("bad", f"echo bad >> {runs}; exit 1"),
    )

    def played(*only: str) -> list[Result]:
        runs.write_text("")
        return list(Runner(campaigns, folder, checkout).run(only=only))

    commit_file(checkout, "one")
    assert outcomes(played()) == {"good": Outcome.PASSED, "bad": Outcome.FAILED}
    again = played()
    assert outcomes(again) == {"good": Outcome.PASSED_BEFORE, "bad": Outcome.FAILED}
    assert (again[0].tried, runs.read_text()) == (7, "bad\n")
    # By name it runs again.
    assert outcomes(played("good")) == {"good": Outcome.PASSED}
    # What is not committed is of no commit, and another commit is another.
    (checkout / "file").write_text("changed")
    assert outcomes(played())["good"] is Outcome.PASSED
    assert outcomes(played())["good"] is Outcome.PASSED
    commit_file(checkout, "two")
    assert outcomes(played())["good"] is Outcome.PASSED
    assert outcomes(played())["good"] is Outcome.PASSED_BEFORE


def commit_file(checkout: Path, text: str) -> None:
    checkout.mkdir(exist_ok=True)
    (checkout / "file").write_text(text)
    git = ["git", "-C", str(checkout), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", text]):
        subprocess.run([*git, *command], check=True)
