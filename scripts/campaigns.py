"""Run the campaigns: every check that takes too long for the gate, each with a time limit, and a table at the end.

Campaigns run as an ordinary user, the attacks of root as root: started by root, this runs the others as the owner of
the checkout. What passed on this very commit is not run again, unless it is named. Logs are in ``.cache/campaigns``.

usage: python -m scripts.campaigns [--list] [--only NAME …] [--skip NAME …] [-- FLAG …]
"""

import argparse
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
MAX_HOURS: Final = 3
# A run of pytest that is interrupted stops its servers and drops its databases.
END_SECONDS: Final = 60
LOOK_SECONDS: Final = 0.2
# For root: its files in the checkout would be in the way of later runs.
OWN_CACHE: Final = Path.home() / ".cache" / "toolcrib-tests"
# What the gate leaves out because it takes long. Its path decides which campaign runs it, whichever of these it has.
LONG: Final = "(long or race or crash or redteam) and not root and not deploy and not real"
OWN_COUNT: Final = re.compile(r"^(?:all: +)?([\d,]+) tried(?:,| /) +([\d,]+) held$", re.MULTILINE)
PYTEST_END: Final = re.compile(r"^=+ (?=\d+ \w+).* in [\d.]+s .*=+$", re.MULTILINE)
PYTEST_COUNT: Final = re.compile(r"(\d+) (passed|failed|error)")


@dataclass(frozen=True)
class Selection:
    """The marked tests below these paths, except those below a path of another campaign that is inside one of them."""

    paths: tuple[str, ...]
    marks: str = LONG
    # Tests that wait for real time run one at a time.
    workers: int = 0
    options: tuple[str, ...] = ()

    def command(self, left_out: Sequence[str]) -> tuple[str, ...]:
        spread = ("-n", str(self.workers), *(("--dist", "loadgroup") if self.workers else ()))
        ignored = (f"--ignore={path}" for path in left_out)
        return ("{python}", "-m", "pytest", *spread, *self.options, "-m", self.marks, *ignored, *self.paths)


@dataclass(frozen=True)
class Campaign:
    """A check outside the gate: tests, or other commands."""

    name: str
    shows: str
    minutes: float
    tests: Selection | None = None
    # Run before the tests.
    commands: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    as_root: bool = False
    # Why it is no part of the whole, and runs only if it is named.
    only_named_because: str = ""


CAMPAIGNS: Final = (
    Campaign("long", "the long tests that belong to no other campaign", 30, Selection(("tests",))),
    Campaign("kills", "servers killed several hundred times lose and repeat nothing", 35, Selection(("tests/faults",))),
    Campaign(
        "kill-resume",
        "a run whose process is killed 100 times goes on, and repeats no call",
        15,
        commands=(("{python}", "-m", "bench", "kill_resume", "--kills", "100"),),
    ),
    Campaign(
        "nodes",
        "three nodes killed, frozen, cut off and emptied 200 times under load",
        45,
        commands=(("{python}", "-m", "tests.faults.nodes_campaign", "--faults", "200", "--forwarding"),),
    ),
    Campaign(
        "db-faults",
        "the database stopped, killed and cut off 100 times under 12 runs",
        20,
        Selection(("tests/faults/test_database_faults.py",), options=("-s",)),
    ),
    Campaign(
        "outages",
        "the database away ten times for 10 to 120 s under 30 runs, paused calls and a schedule",
        25,
        Selection(("tests/faults/test_outages.py",), options=("-s",)),
    ),
    Campaign(
        "git-undo",
        "undo of 488 generated mixtures of an agent's and a person's git commands, and 12 more in the gate",
        25,
        Selection(
            (
                "tests/integration/tools/shell/test_git_interleavings.py",
                "tests/integration/tools/shell/test_git_undo.py",
            ),
            workers=2,
        ),
        environment={"TOOLCRIB_GIT_INTERLEAVINGS": "500"},
    ),
    Campaign(
        "undo-scale",
        "undo and redo of up to 100,000 files, and what they cost",
        15,
        Selection(("tests/integration/tools/shell/test_undo_scale.py",)),
    ),
    Campaign(
        "browser",
        "190 generated change sets whose every line is seen, and the longer tests of the web UI",
        25,
        Selection(("tests/web",), workers=2),
    ),
    Campaign(
        "sessions",
        "realistic sessions with git, pip, npm and make: questions, undo, redo",
        20,
        Selection(("tests/sessions",), workers=2),
    ),
    Campaign("redteam", "the long attacks", 30, Selection(("tests/redteam", "tests/adversarial"), workers=2)),
    Campaign(
        "redteam-root",
        "the attacks that need root and a second user of the machine",
        10,
        Selection(("tests/redteam",), marks="root", options=("-o", f"cache_dir={OWN_CACHE / 'pytest'}")),
        environment={"PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(OWN_CACHE / "hypothesis")},
        as_root=True,
    ),
    Campaign(
        "restore-drill",
        "every file of 1,000 workspaces is read after a restore without their disk",
        15,
        Selection(("tests/acceptance/test_restore_drill.py",)),
    ),
    Campaign(
        "engine",
        "the durable queue with two processes reaches its goals; needs an idle machine",
        15,
        commands=(("{python}", "-m", "bench", "engine"),),
    ),
    Campaign(
        "first-minute",
        "a new user's first minute, from the wheel to undo",
        10,
        commands=(("{python}", "-m", "scripts.first_minute"),),
    ),
    Campaign(
        "deploy",
        "the chart renders to valid objects, by the tools of a release",
        10,
        Selection(("tests/deploy",), marks="deploy"),
        commands=(("scripts/release", "tools"),),
    ),
    Campaign(
        "real",
        "a real, small model gets a task done",
        60,
        Selection(("tests/real",), marks="real"),
        commands=(("scripts/real_model",),),
        only_named_because="builds a model first, for 12 minutes",
    ),
)


class Outcome(StrEnum):
    PASSED = "passed"
    PASSED_BEFORE = "passed before, on this commit"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED OUT"
    NOT_RUN = "NOT RUN"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class Result:
    """How a campaign ended. ``tried`` is None if nothing was counted."""

    name: str
    outcome: Outcome
    tried: int | None = None
    held: int | None = None
    seconds: float = 0
    reason: str = ""

    @property
    def is_good(self) -> bool:
        return self.outcome in (Outcome.PASSED, Outcome.PASSED_BEFORE, Outcome.LEFT_OUT)


class Passes:
    """The results of the campaigns that passed on one commit. Uncommitted changes are of no commit."""

    def __init__(self, path: Path, checkout: Path) -> None:
        self._path, self._checkout = path, checkout
        self._commit = self._current_commit()
        self._results: dict[str, Result] = {}
        if self._commit is not None and path.exists():
            written = json.loads(path.read_text())
            if written["commit"] == self._commit:
                rows = (row | {"outcome": Outcome.PASSED_BEFORE} for row in written["passed"])
                self._results = {row["name"]: Result(**row) for row in rows}

    def get(self, name: str) -> Result | None:
        return self._results.get(name)

    def add(self, result: Result) -> None:
        # Files that changed meanwhile are of another commit, or of none.
        if self._commit is None or self._current_commit() != self._commit:
            return
        self._results[result.name] = replace(result, outcome=Outcome.PASSED_BEFORE)
        rows = [asdict(passed) for passed in self._results.values()]
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"commit": self._commit, "passed": rows}, indent=1))
        _give_away(new, self._checkout)
        new.replace(self._path)

    def _current_commit(self) -> str | None:
        # Root may look at the checkout of another user, and leaves no index of its own there.
        git = ["git", "--no-optional-locks", "-c", f"safe.directory={self._checkout}", "-C", str(self._checkout)]
        head, status = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=False)
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
        is_clean = head.returncode == status.returncode == 0 and not status.stdout
        return head.stdout.strip() if is_clean else None


class Runner:
    """Runs campaigns one after the other, and keeps their output and what passed in a folder."""

    def __init__(self, campaigns: Sequence[Campaign], folder: Path, checkout: Path = ROOT) -> None:
        self.campaigns, self.folder, self.checkout = campaigns, folder, checkout
        folder.mkdir(parents=True, exist_ok=True)
        _give_away(folder, checkout)
        self.passes = Passes(folder / "passed.json", checkout)

    def run(
        self, *, only: Sequence[str] = (), skip: Sequence[str] = (), flags: Sequence[str] = (), hours: float = MAX_HOURS
    ) -> Iterator[Result]:
        deadline = time.monotonic() + hours * 3600
        for campaign in self.campaigns:
            if only and campaign.name not in only:
                continue
            result = self._without_running(campaign, only, skip, deadline)
            if result is None:
                result = self._run(campaign, flags, deadline)
                # With other flags it is another campaign.
                if result.outcome is Outcome.PASSED and not flags:
                    self.passes.add(result)
            yield result

    def _without_running(
        self, campaign: Campaign, only: Sequence[str], skip: Sequence[str], deadline: float
    ) -> Result | None:
        name = campaign.name
        if name in skip:
            return Result(name, Outcome.LEFT_OUT)
        if not only and campaign.only_named_because:
            return Result(name, Outcome.LEFT_OUT, reason=f"{campaign.only_named_because}: ONLY={name}")
        if not only and (passed := self.passes.get(name)) is not None:
            return passed
        if campaign.as_root and os.geteuid() != 0:
            return Result(name, Outcome.NOT_RUN, reason=f"needs root; SKIP={name} leaves it out")
        if not campaign.as_root and self._user() == 0:
            return Result(name, Outcome.NOT_RUN, reason="needs an ordinary user, but root owns the checkout")
        if time.monotonic() > deadline:
            return Result(name, Outcome.NOT_RUN, reason="no time was left; another run continues")
        return None

    def _run(self, campaign: Campaign, flags: Sequence[str], deadline: float) -> Result:
        print(f"\n=== {campaign.name}: {campaign.shows} (at most {campaign.minutes:g} minutes)", flush=True)
        began = time.monotonic()
        deadline = min(deadline, began + campaign.minutes * 60)
        log = self.folder / f"{campaign.name}.log"
        status: int | None = 0
        with log.open("wb") as output, log.open("rb") as printed:
            _give_away(log, self.checkout)
            commands = commands_of(campaign, self.campaigns)
            for number, command in enumerate(commands):
                last = flags if number == len(commands) - 1 else ()
                process = subprocess.Popen(
                    [*command, *last],
                    cwd=self.checkout,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    **self._identity(campaign),
                )
                try:
                    status = _wait(process, printed, deadline)
                finally:
                    _end(process)
                if status != 0:
                    break
        tried, held = counts(log.read_text(errors="replace"))
        outcome = {0: Outcome.PASSED, None: Outcome.TIMED_OUT}.get(status, Outcome.FAILED)
        return Result(campaign.name, outcome, tried, held, time.monotonic() - began)

    def _user(self) -> int:
        """The user that campaigns run as: this one, or instead of root the owner of the checkout."""
        return os.geteuid() or self.checkout.stat().st_uid

    def _identity(self, campaign: Campaign) -> dict[str, Any]:
        if campaign.as_root or os.geteuid() != 0:
            return {"env": {**os.environ, **campaign.environment}}
        user = pwd.getpwuid(self._user())
        # The settings of root may point where another user cannot read.
        kept = {
            name: value for name in ("PATH", "LANG", "TOOLCRIB_TEST_DATABASE_URL") if (value := os.environ.get(name))
        }
        named = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
        groups = os.getgrouplist(user.pw_name, user.pw_gid)
        return {
            "env": {**kept, **named, **campaign.environment},
            "user": user.pw_uid,
            "group": user.pw_gid,
            "extra_groups": groups,
        }


def commands_of(campaign: Campaign, campaigns: Sequence[Campaign]) -> list[list[str]]:
    commands = [*campaign.commands]
    if campaign.tests is not None:
        commands.append(campaign.tests.command(paths_of_others(campaign, campaigns)))
    return [[sys.executable if part == "{python}" else part for part in command] for command in commands]


def paths_of_others(campaign: Campaign, campaigns: Sequence[Campaign]) -> list[str]:
    """Return the paths, inside those of a campaign, whose tests with the same marks another campaign runs."""
    tests = campaign.tests
    if tests is None:
        return []
    others = [
        path
        for other in campaigns
        if other is not campaign and other.tests is not None and other.tests.marks == tests.marks
        for path in other.tests.paths
    ]
    return [path for path in others if any(Path(path).is_relative_to(own) for own in tests.paths)]


def counts(output: str) -> tuple[int | None, int | None]:
    """Return how many were tried and held: as the campaign counts them, else the tests in pytest's last line."""
    if own := OWN_COUNT.findall(output):
        tried, held = own[-1]
        return int(tried.replace(",", "")), int(held.replace(",", ""))
    if not (ends := PYTEST_END.findall(output)):
        return None, None
    found = {what: int(count) for count, what in PYTEST_COUNT.findall(ends[-1])}
    return sum(found.values()), found.get("passed", 0)


def _wait(process: subprocess.Popen[bytes], printed: Any, deadline: float) -> int | None:
    """Print the output until the process ends, and return its status, or None if the time is over."""
    # Not a pipe: a server that a campaign leaves behind would hold it open.
    while True:
        try:
            status: int | None = process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        sys.stdout.write(printed.read().decode(errors="replace"))
        sys.stdout.flush()
        if status is not None or time.monotonic() > deadline:
            return status


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _give_away(path: Path, checkout: Path) -> None:
    """Let the owner of the checkout continue with what root made."""
    if os.geteuid() == 0:
        owner = checkout.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def table(results: Sequence[Result]) -> str:
    width = max(len("campaign"), *(len(result.name) for result in results))
    lines = [f"{'campaign':{width}} {'tried':>7} {'held':>7} {'seconds':>8}  result"]
    for result in results:
        tried, held = ("–" if count is None else f"{count:,}" for count in (result.tried, result.held))
        reason = f": {result.reason}" if result.reason else ""
        lines.append(
            f"{result.name:{width}} {tried:>7} {held:>7} {result.seconds:8,.0f}  {result.outcome}{reason}".rstrip()
        )
    return "\n".join(lines)


def main() -> int:
    names = [campaign.name for campaign in CAMPAIGNS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the campaigns and what they show")
    parser.add_argument(
        "--only", nargs="+", default=(), choices=names, metavar="NAME", help="run these, again if need be"
    )
    parser.add_argument("--skip", nargs="+", default=(), choices=names, metavar="NAME", help="leave these out")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="for the command of the only campaign")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{one.name:14} {one.minutes:3g} min  {one.shows}" for one in CAMPAIGNS))
        return 0
    if options.flags and len(options.only) != 1:
        parser.error("flags are for one campaign: name it")
    # Campaigns are sessions of their own, which no terminal interrupts. A shell may have told this to ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    results: list[Result] = []
    try:
        runner = Runner(CAMPAIGNS, ROOT / ".cache" / "campaigns")
        for result in runner.run(only=options.only, skip=options.skip, flags=options.flags):
            results.append(result)
    finally:
        if results:
            print(f"\n{table(results)}")
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
