"""Play the first minute of a new user: install the wheel, run with approvals, read the log, undo. Prints times.

The user is an ordinary one (root switches to another), has no running PostgreSQL, and uses a fake model on loopback.
Exits with 1 if a step fails. A time that misses its target is printed, but is no failure.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.acceptance.local_machine import Laptop, laptop
from tests.integration.runs.conftest import says

ROOT = Path(__file__).parent.parent
FIRST_AIM, LATER_AIM = 5.0, 1.5
ALLOW = "[a]lways in this session: "
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FIRST_WORDS = "I shall mend it"
COMMAND = "python3 -m unittest -q 2>&1 | tail -1 > result.txt; rm old.txt; mkdir -p done/today; chmod 600 notes.md"
FILES = {
    "greeting.py": "def greet():\n    return 'Oi'\n",
    "test_greeting.py": (
        "import unittest\nfrom greeting import greet\n\n\nclass Greeting(unittest.TestCase):\n"
        "    def test_greet(self):\n        self.assertEqual(greet(), 'Good day')\n"
    ),
    "old.txt": "old\r\n",
    "notes.md": "# Notes\n",
    "docs/deep/page.md": "A page.\n",
}
EDIT = {"path": "/greeting.py", "old_string": "Oi", "new_string": "Good day"}


def main() -> int:
    with laptop() as own:
        began = time.monotonic()
        own.program = str(_install(own.base) / "bin" / "toolcrib")
        print(f"wheel built and installed in a clean environment: {time.monotonic() - began:.1f} s")
        print(f"version: {_says(own, '--version', at=own.base)}", end="")
        project = _project(own)
        before = _tree(project)
        _report("first word, with the database made on the way", _run_with_approvals(own, project), FIRST_AIM)
        after = _tree(project)
        _require(after != before, "the run changed nothing")
        _require((project / "result.txt").read_text() == "OK\n", "the command did not run the tests")
        log = _says(own, "log", at=project)
        _require("edit /greeting.py" in log, f"the log has no edit:\n{log}")
        _require("unittest" in log and "approved by a person" in log, f"the log has no command:\n{log}")
        print("log: shows the edit and the command, both approved by a person")
        print(_says(own, "undo", at=project).strip())
        _require(_tree(project) == before, "undo did not restore the tree")
        print(f"undo: {len(before)} files and folders as they were, byte for byte, modes included")
        _report("first word, later", _first_word(own, project), LATER_AIM)
    return 0


def _install(base: Path) -> Path:
    """Install as the current user, so that their package settings apply, and make it readable for the new user."""
    environment, dist = base / "environment", base / "dist"
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist), at=ROOT)
    _run("/usr/bin/python3", "-m", "venv", str(environment), at=base)
    (wheel,) = dist.glob("*.whl")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    _run(*pip, "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements" / "runtime.txt"), at=base)
    _run(*pip, "--no-deps", str(wheel), at=base)
    return environment


def _project(own: Laptop) -> Path:
    project = own.project("greeting")
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(text.encode())
    (project / "notes.md").chmod(0o644)
    (project / "link").symlink_to("docs/deep/page.md")
    owner = project.stat()
    for path in project.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return project


def _run_with_approvals(own: Laptop, project: Path) -> float:
    """Run an agent that edits a file and runs a command, both approved. Returns the seconds until its first word."""
    own.model.script = [
        says(f"{FIRST_WORDS}.", ("read", {"path": "/greeting.py"})),
        says("", ("edit", EDIT)),
        says("", ("bash", {"command": COMMAND})),
        says("It is polite now, and tested."),
    ]
    began = time.monotonic()
    with own.terminal("run", "Make greet() polite, and test it", at=project) as run:
        run.until(FIRST_WORDS)
        took = time.monotonic() - began
        shown = run.until(ALLOW)
        _require("Good day" in shown, f"the approval shows no diff:\n{shown}")
        run.type("y")
        _require("unittest" in run.until(ALLOW), "the command was not shown")
        run.type("y")
        run.until("It is polite now")
        _require(run.process.wait(60) == 0, f"the run ended with {run.process.returncode}:\n{run.shown}")
    return took


def _first_word(own: Laptop, project: Path) -> float:
    own.model.script = [says(f"{FIRST_WORDS}.")]
    began = time.monotonic()
    with own.terminal("run", "Hello", at=project) as run:
        run.until(FIRST_WORDS)
        took = time.monotonic() - began
        run.process.wait(60)
    return took


def _says(own: Laptop, *arguments: str, at: Path) -> str:
    with own.terminal(*arguments, at=at) as command:
        while True:
            try:
                command.until("\0")
            except AssertionError:
                break
        _require(command.process.wait(60) == 0, f"toolcrib {' '.join(arguments)} failed:\n{command.shown}")
        return COLOUR.sub("", command.shown)


def _tree(project: Path) -> dict[str, tuple[int, str]]:
    """Return every path with its mode and content."""
    return {str(path.relative_to(project)): (path.lstat().st_mode, _content(path)) for path in project.rglob("*")}


def _content(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    return "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def _report(what: str, seconds: float, aim: float) -> None:
    """Format a result with the load of the machine: the number of processes that want a processor, ours included."""
    busy = f"{os.getloadavg()[0]:.1f} processes on {os.cpu_count()} processors"
    print(f"{what}: {seconds:.2f} s (aim: under {aim} s{'' if seconds < aim else '; missed'}; {busy})")


def _require(held: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not held:
        raise SystemExit(f"first-minute: {otherwise}")


def _run(*command: str, at: Path) -> None:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    _require(done.returncode == 0, f"{shutil.which(command[0])} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
