"""The recorder attributes the lines of a server to the test that runs at that moment, without its environment."""

import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts" / "planted"
SERVED = "def first():\n    return 1\ndef second():\n    return 2\ndef third():\n    return 3\n"
WORKER = """
    import subprocess, sys
    sys.path.insert(0, sys.argv[1])
    from scripts.planted.recording_plugin import Announcer

    announcer = Announcer()
    announcer.announce("1.0")
    server = subprocess.Popen(
        [sys.executable, "-I", *sys.argv[2:], sys.argv[1]], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for number, request in enumerate((b"first", b"second", b"third", b"first"), 1):
        announcer.announce(f"1.{number}")
        server.stdin.write(request + b"\\n")
        server.stdin.flush()
        assert server.stdout.readline() == b"done\\n"
    announcer.announce("1.5")
    server.kill()
"""
SERVER = """
    import os, sys
    sys.path[:0] = [f"{sys.argv[1]}/scripts/planted", f"{sys.argv[1]}/src"]
    # The whole gate may be recorded at the moment.
    sys.modules.pop("process_recorder", None)
    import process_recorder
    process_recorder.start_in_child()
    from toolcrib import served

    for request in sys.stdin:
        if request == "third\\n":
            child = os.fork()
            if child == 0:
                served.third()
                os._exit(0)
            os.waitpid(child, 0)
        else:
            getattr(served, request.strip())()
        print("done", flush=True)
"""


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A directory with a short path: a socket in it has at most 108 characters."""
    with tempfile.TemporaryDirectory(prefix="planted-", dir="/tmp") as directory:
        yield Path(directory)


def test_lines_of_a_server_and_of_what_it_forks_are_those_of_the_current_test(checkout: Path) -> None:
    shutil.copytree(SCRIPTS, checkout / "scripts" / "planted", ignore=shutil.ignore_patterns("__pycache__"))
    package = checkout / "src" / "toolcrib"
    notes = checkout / ".cache" / "planted"
    for folder in (package, notes / "raw", notes / "workers"):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "served.py").write_text(SERVED)
    (notes / "recording").touch()

    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(checkout), "-c", textwrap.dedent(SERVER)]
    subprocess.run(command, check=True)

    lines: dict[str, set[int]] = defaultdict(set)
    for file in (notes / "raw").glob("*.lines"):
        for row in file.read_text().splitlines():
            context, path, numbers = row.split("\t")
            if path == "served.py":
                lines[context] |= {int(number) for number in numbers.split(",")} - {1, 3, 5}
    assert {context: ran for context, ran in lines.items() if ran} == {"1.1": {2}, "1.2": {4}, "1.3": {6}, "1.4": {2}}
