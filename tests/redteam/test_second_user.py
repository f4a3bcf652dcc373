"""Local mode on a shared machine: a second user inspects everything while the first one works.

Needs root, to be two users: ``pytest -m root tests/redteam/test_second_user.py``.
"""

import json
import os
import pwd
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance.local_machine import Laptop, laptop, secrets_of
from tests.redteam import attacker
from tests.wait_until import PATIENCE
from toolcrib.core.ids import new_id

pytestmark = pytest.mark.root

SHOWN = "It logs you in once:\n\n  "
# Runs while the test needs it: for that long its arguments can be read.
BROWSER = """#!/bin/sh
echo "$@" > {noted}
until [ -e {noted}.go ]; do read -t 0.1 _ < /dev/null; sleep 0.05; done
"""


@pytest.fixture
def victim(monkeypatch: pytest.MonkeyPatch) -> int:
    assert os.geteuid() == 0, "To be two users takes root."
    found = pwd.getpwnam(os.environ.get("TOOLCRIB_TEST_USER", "crib")).pw_uid
    monkeypatch.setattr("tests.acceptance.local_machine._NOBODY", found)
    return found


@pytest.fixture
def other() -> Iterator[int]:
    name = f"mallory{secrets.token_hex(3)}"
    subprocess.run(["/usr/sbin/useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
    try:
        yield pwd.getpwnam(name).pw_uid
    finally:
        subprocess.run(["/usr/sbin/userdel", name], check=True)


@pytest.fixture
def own(victim: int) -> Iterator[Laptop]:
    with laptop() as made:
        yield made


def test_second_user_gets_nothing_by_arguments_environment_files_ports_or_sockets(
    own: Laptop, victim: int, other: int
) -> None:
    project = own.project()
    noted = own.base / "projects" / "noted"
    program = own.base / "projects" / "browser"
    program.write_text(BROWSER.format(noted=noted))
    program.chmod(0o755)

    with _attacked(own, victim, other) as watched, own.terminal("web", at=project, BROWSER=str(program)) as serving:
        serving.until(SHOWN)
        link = urlsplit(serving.until("\n"))
        _once(noted.exists)
        rounds = watched()["rounds"]
        _once(lambda: watched()["rounds"] >= rounds + 3)
        secret = json.loads(next((own.data / "projects").glob("*/server.json")).read_text())["secret"]
        seen = watched()
        noted.with_name("noted.go").touch()
        serving.interrupt()
        serving.process.wait(PATIENCE)

    read = "\n".join(seen["arguments"] + seen["environments"])
    assert [one for one in (link.fragment, link.hostname, secret, *secrets_of(own)) if one and one in read] == []
    assert str(program) in read, "The attacker did not even see the browser, so this shows nothing."
    assert seen["environments"] == []
    assert [one for one in seen["files"] if one.startswith(str(own.data))] == []
    assert seen["sockets"] == []
    assert link.port in seen["ports"]
    opened = {(address, status) for _, address, status in seen["answers"] if status == 200}
    # The page itself is the same for everyone, and contains nothing.
    assert opened <= {("/", 200)}


def test_listener_on_an_abandoned_port_is_not_trusted(own: Laptop, victim: int, other: int) -> None:
    notes = own.project()
    note = notes / "server.json"
    program = (
        "import socket, sys; taken = socket.create_server(('127.0.0.1', 0));"
        "print(taken.getsockname()[1], flush=True); sys.stdin.read()"
    )
    look = (
        "from pathlib import Path; from toolcrib.local.local_mode import _other_servers;"
        f"print(_other_servers(Path({str(notes)!r})))"
    )
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", program],
        user=other,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as squatter:
        assert squatter.stdout
        port = int(squatter.stdout.readline())
        path_state = {"secret": "x", "user_id": str(new_id()), "token_version": 0, "workspace_id": str(new_id())}
        note.write_text(json.dumps(path_state | {"address": f"http://127.0.0.1:{port}"}))
        os.chown(note, victim, victim)
        said = subprocess.run(
            [sys.executable, "-c", look], user=victim, env=own.environment, capture_output=True, text=True, check=True
        ).stdout
        squatter.communicate()

    assert said == "None\n"


@contextmanager
def _attacked(own: Laptop, victim: int, other: int) -> Iterator[Any]:
    """Run the second user and return what they have seen so far."""
    folder = own.base / "mallory"
    folder.mkdir()
    program, report = folder / "attacker.py", folder / "report"
    program.write_text(Path(attacker.__file__).read_text())
    os.chown(folder, other, other)
    command = ["/usr/bin/python3", "-I", str(program), str(victim), str(own.base / "home"), str(report)]
    with subprocess.Popen(command, user=other, group=other, extra_groups=[], cwd="/") as process:

        def seen() -> Any:
            assert process.poll() is None, "The attacker ended."
            return json.loads(report.read_text())

        try:
            _once(report.exists)
            yield seen
        finally:
            report.with_suffix(".stop").touch()
            process.wait(PATIENCE)


def _once(there: Any) -> None:
    tick, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline
        tick.wait(0.05)
