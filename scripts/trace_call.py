"""Count the files that a tool call or a turn crosses: how far a reader has to follow it.

Starts local mode in a temporary directory, warms it up, and traces calls over HTTP and a turn over a WebSocket with a
profiler in every thread. The ``write`` creates a file, and the ``bash`` command changes one. Prints how many files of
the package outside ``core`` each of them enters, and the moves: calls from one file into another.

What runs in the context of the traced connection counts. So does what it hands to other tasks and threads: calls that
happen in every repetition, and never while the server is idle. A timer may fall into all of a few repetitions: a call
above its ceiling is repeated until it is not, or often enough to be sure.

usage: python -m scripts.trace_call [--list] [--moves] [--check] [NAME …]
"""

import argparse
import dis
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

import toolcrib
from tests.fakes.model_server import KEY, model_server_beside
from tests.fakes.scripted_turns import SCENES
from toolcrib.local.local_mode import LocalServer, open_local

PACKAGE: Final = f"{Path(toolcrib.__file__).parent}/"
# Starts the event loop: what it calls is called by nobody.
STARTER: Final = f"{PACKAGE}local/in_process_server.py"
HEADER: Final = "x-trace"
WARM, REPETITIONS, MAX_REPETITIONS = 3, 3, 20
QUIET_SECONDS: Final = 8.0
# After a response, for work that the request left to others.
DRAIN_SECONDS: Final = 0.3
FRESH: Final = bytes((dis.opmap["RESUME"], 0))
PATIENCE: Final = 60
NOBODY: Final = 65_534


@dataclass(frozen=True)
class Ceiling:
    """The most files and moves of a call."""

    files: int
    moves: int


# What was measured last: they only go down, with the change that shortens a path. A reader could follow a `read`
# through 20 files, a `write` through 25, a command or a turn through 40.
CEILINGS: Final = {
    "read": Ceiling(files=29, moves=83),
    "write": Ceiling(files=40, moves=183),
    "edit": Ceiling(files=44, moves=215),
    "bash": Ceiling(files=59, moves=376),
    "turn": Ceiling(files=51, moves=520),
}

# Caller and callee. The caller is the nearest function of the package; None if the event loop or a thread is next.
Call = tuple[CodeType | None, CodeType]
_is_ours: ContextVar[bool] = ContextVar("is_ours", default=False)


@dataclass
class Tracer:
    """Records the calls of all threads that start while it is installed."""

    is_recording: bool = False
    # Of the context of the traced connection, and of everything else.
    ours: Counter[Call] = field(default_factory=Counter)
    others: Counter[Call] = field(default_factory=Counter)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_name == "data_received":
            # From here on, the connection's context and those of its tasks are ours.
            data = frame.f_locals.get("data")
            if isinstance(data, bytes) and HEADER.encode() in data:
                _is_ours.set(True)
        if not self.is_recording or not code.co_filename.startswith(PACKAGE) or not _is_entry(frame):
            return
        (self.ours if _is_ours.get() else self.others)[_caller(frame), code] += 1

    @contextmanager
    def recording(self) -> Iterator[None]:
        self.ours, self.others = Counter(), Counter()
        self.is_recording = True
        try:
            yield
            time.sleep(DRAIN_SECONDS)
        finally:
            self.is_recording = False


def _is_entry(frame: FrameType) -> bool:
    """Whether a function begins. A coroutine is entered again whenever it continues; comprehensions do not count."""
    at = frame.f_lasti
    name = frame.f_code.co_name
    return frame.f_code.co_code[at : at + 2] == FRESH and (name == "<lambda>" or not name.startswith("<"))


def _caller(frame: FrameType) -> CodeType | None:
    above = frame.f_back
    while above is not None and not above.f_code.co_filename.startswith(PACKAGE):
        above = above.f_back
    return None if above is None or above.f_code.co_filename == STARTER else above.f_code


@dataclass(frozen=True)
class CallPath:
    """What one call crosses."""

    calls: Counter[Call]

    @property
    def files(self) -> list[str]:
        found = {_name(callee) for _, callee in self.calls}
        return sorted(name for name in found if not name.startswith("core/"))

    @property
    def moves(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for (caller, callee), count in self.calls.items():
            if caller is not None and caller.co_filename != callee.co_filename:
                found[_name(caller), _name(callee)] += count
        return found

    def is_within(self, ceiling: Ceiling) -> bool:
        return len(self.files) <= ceiling.files and self.moves.total() <= ceiling.moves


def _name(code: CodeType) -> str:
    return code.co_filename.removeprefix(PACKAGE)


class Session:
    """A connection to the server, and what to send over it."""

    def __init__(self, server: LocalServer, tracer: Tracer) -> None:
        self.server = server
        self.tracer = tracer
        self._http = HTTPConnection(urlsplit(server.address).netloc, timeout=PATIENCE)
        self._number = 0

    def request(self, method: str, path: str, body: Any) -> Any:
        headers = {"authorization": f"Bearer {self.server.token()}", "content-type": "application/json", HEADER: "1"}
        self._http.request(method, f"/api/v1{path}", json.dumps(body), headers)
        response = self._http.getresponse()
        text = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path} answered {response.status}: {text.decode()}")
        return json.loads(text) if text else None

    def in_workspace(self, method: str, path: str, body: Any) -> Any:
        return self.request(method, f"/workspaces/{self.server.workspace_id}{path}", body)

    def call(self, tool: str, **args: Any) -> Any:
        return self.in_workspace("POST", "/tools", {"tool": tool, "args": args})["result"]

    def run(self, command: str) -> None:
        result = self.call("bash", command=command)
        if result["is_error"]:
            raise SystemExit(f"The command did not run: {result}")

    def reconnect(self) -> None:
        """Open a new connection with the next call."""
        self._http.close()

    @property
    def next_number(self) -> int:
        self._number += 1
        return self._number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CEILINGS)}; all by default")
    parser.add_argument("--list", action="store_true", help="print the files")
    parser.add_argument("--moves", action="store_true", help="print the moves")
    parser.add_argument("--check", action="store_true", help="fail above a ceiling")
    options = parser.parse_args()
    if unknown := set(options.names) - set(CEILINGS):
        parser.error(f"unknown: {', '.join(unknown)}")
    _become_ordinary()
    above: list[str] = []
    print(f"{'call':8}{'files':>6}{'ceiling':>9}{'moves':>8}{'ceiling':>9}")
    for name, path in _measured(options.names or list(CEILINGS)):
        ceiling, files, moves = CEILINGS[name], path.files, path.moves
        print(f"{name:8}{len(files):6}{ceiling.files:9}{moves.total():8}{ceiling.moves:9}", flush=True)
        if not path.is_within(ceiling):
            above.append(name)
        if options.list:
            print("".join(f"    {file}\n" for file in files))
        if options.moves:
            print("".join(f"    {count:4} {caller} → {callee}\n" for (caller, callee), count in moves.most_common()))
    if above:
        print(f'Above the ceiling: {", ".join(above)}. FLAGS="--list --moves" shows where the calls go.')
    return int(options.check and bool(above))


def _become_ordinary() -> None:
    """Start again as another user if this one is root: PostgreSQL does not run as root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        # Without a new start the process could not read its own files in /proc.
        os.execv(sys.executable, [sys.executable, "-m", "scripts.trace_call", *sys.argv[1:]])  # noqa: S606 - no shell


def _measured(names: list[str]) -> Iterator[tuple[str, CallPath]]:
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder, model_server_beside() as model:
        project = Path(folder) / "project"
        project.mkdir()
        # The settings of this machine's person would make the path of a command longer.
        os.environ["HOME"] = folder
        os.environ.pop("XDG_CONFIG_HOME", None)
        os.environ["TOOLCRIB_HOME"] = str(Path(folder) / "home")
        # Before the server's threads start: each gets the profiler.
        threading.setprofile(tracer.profile)
        try:
            with open_local(project) as server:
                session = Session(server, tracer)
                session.call("write", path="/read.txt", content="one\ntwo\n")
                session.call("write", path="/edit.txt", content="number 0\n")
                with _talking(session, f"{model.url}/v1") as turn:
                    actions: dict[str, Callable[[], object]] = {
                        "read": lambda: session.call("read", path="/read.txt"),
                        "write": lambda: session.call("write", path=f"/{session.next_number}.txt", content="new\n"),
                        "edit": _editing(session),
                        "bash": lambda: session.run(f"echo {session.next_number} > bash.txt"),
                        "turn": turn,
                    }
                    for name in names:
                        for _ in range(WARM):
                            actions[name]()
                    with tracer.recording():
                        time.sleep(QUIET_SECONDS)
                    idle = set(tracer.others) | set(tracer.ours)
                    # The server has closed the idle connection.
                    session.reconnect()
                    for name in names:
                        yield name, _traced(tracer, actions[name], idle, CEILINGS[name])
        finally:
            threading.setprofile(None)


def _traced(tracer: Tracer, action: Callable[[], object], idle: set[Call], ceiling: Ceiling) -> CallPath:
    action()
    path = _repetition(tracer, action, idle)
    for number in range(1, MAX_REPETITIONS):
        if number >= REPETITIONS and path.is_within(ceiling):
            break
        path = CallPath(path.calls & _repetition(tracer, action, idle).calls)
    return path


def _repetition(tracer: Tracer, action: Callable[[], object], idle: set[Call]) -> CallPath:
    with tracer.recording():
        action()
    handed_on = Counter({call: count for call, count in tracer.others.items() if call not in idle})
    return CallPath(tracer.ours + handed_on)


def _editing(session: Session) -> Callable[[], None]:
    written = 0

    def edit() -> None:
        nonlocal written
        written += 1
        session.call("edit", path="/edit.txt", old_string=f"number {written - 1}\n", new_string=f"number {written}\n")

    return edit


@contextmanager
def _talking(session: Session, model_url: str) -> Iterator[Callable[[], object]]:
    """Open a WebSocket to an agent whose model runs on loopback, and yield one turn: a message and its answer."""
    session.request("PUT", "/credentials/openai-compatible", {"secret": KEY, "base_url": model_url})
    definition = "provider: openai-compatible\nmodel: gpt-fake\ntrust: guided\ntoolsets: [workspace]\n"
    agent = session.in_workspace("POST", "/agents", {"name": "traced", "definition": definition})
    conversation = session.in_workspace("POST", "/sessions", {"agent_id": agent["id"]})["id"]
    address = f"{session.server.address.replace('http', 'ws', 1)}/api/v1/workspaces/{session.server.workspace_id}/ws"
    headers = {"authorization": f"Bearer {session.server.token()}", HEADER: "1"}
    with connect(address, additional_headers=headers, proxy=None) as socket:

        def turn() -> None:
            payload = {"conversationId": conversation, "content": next(iter(SCENES))}
            socket.send(json.dumps({"type": "chat:send", "payload": payload}))
            _wait_for_end(socket)

        yield turn


def _wait_for_end(socket: ClientConnection) -> None:
    while True:
        message = json.loads(socket.recv(timeout=PATIENCE))
        if message["type"] == "chat:error":
            raise SystemExit(f"The turn failed: {message['payload']}")
        if message["type"] == "chat:stream-end":
            return


if __name__ == "__main__":
    sys.exit(main())
