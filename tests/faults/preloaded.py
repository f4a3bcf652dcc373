"""A process that has loaded the program and forks servers: most of a start is loading, and tests start hundreds.

A server that was forked is a process of its own, which signals reach and which dies alone. It has the modules of
``toolcrib serve``, and reads its settings after the fork.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

# What a server has loaded when it responds, by their packages.
_MODULES: Final = (
    "dbos", "toolcrib.cli.main", "toolcrib.cli.serve", "toolcrib.runs.durable", "toolcrib.wiring.server",
    "uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto",
)  # fmt: skip
_LARGEST_REQUEST: Final = 1 << 20


class ForkedProcess:
    """A server that was forked, with what tests use of ``subprocess.Popen``."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self._ended = ended
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._status if self._status is not None or not self._has_ended(0) else self.wait()

    def wait(self, seconds: float | None = None) -> int:
        if self._status is None:
            if not self._has_ended(seconds):
                raise subprocess.TimeoutExpired("toolcrib serve", seconds or 0)
            said = os.read(self._ended, 100)
            os.close(self._ended)
            assert said, "The process that forks servers has died."
            self._status = int(said)
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, seconds: float | None) -> bool:
        return bool(select.select([self._ended], [], [], seconds)[0])


class Preloaded:
    """The process that forks servers for this one. It ends with it."""

    _only: "Preloaded | None" = None
    _starting = threading.Lock()

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-m", __name__], stdin=theirs.fileno())
        atexit.register(self._requests.close)

    @classmethod
    def start(cls, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedProcess:
        """Run ``toolcrib`` with these arguments, and append its output to a file."""
        with cls._starting:
            if cls._only is None:
                cls._only = cls()
            return cls._only._fork(arguments, environment, log)

    def _fork(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedProcess:
        ended, reports = os.pipe()
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        request = json.dumps({"arguments": [*arguments], "environment": {**environment}}).encode()
        try:
            socket.send_fds(self._requests, [request], [output, reports])
        finally:
            os.close(output)
            os.close(reports)
        return ForkedProcess(int(self._requests.recv(100)), ended)


def _load() -> None:
    for module in _MODULES:
        importlib.import_module(module)
    assert threading.active_count() == 1, "A module starts a thread, which a fork would not have."
    # So that the servers share these objects.
    gc.collect()
    gc.freeze()


def _serve() -> None:
    """Fork a server for each request, and report the exit status of each, until nobody can ask any more."""
    requests = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reports: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, 1_000)
            _report(reports)
        if requests.fileno() in readable:
            data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 2)
            if not data:
                return
            output, report = descriptors
            pid = os.fork()
            if pid == 0:
                for one in (woken, wakes, requests.detach(), *reports.values(), report):
                    os.close(one)
                _become_server(json.loads(data), output)
            os.close(output)
            reports[pid] = report
            requests.send(str(pid).encode())


def _report(reports: dict[int, int]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        report = reports.pop(pid)
        os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(report)


def _become_server(request: dict[str, Any], output: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["toolcrib", *request["arguments"]]
    from toolcrib.cli.main import main

    main()
    sys.exit(0)


if __name__ == "__main__":
    _load()
    _serve()
