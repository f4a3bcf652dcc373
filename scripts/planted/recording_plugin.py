"""Tell the recorders in a test process, and in the processes below it, which test runs.

``-p scripts.planted.recording_plugin`` loads it.
"""

import json
import os
import re
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.planted.process_recorder import RAW, WORKERS, Recorder, follow_forks

# A process that is frozen, or that has died unnoticed, does not hold up the tests.
_MAX_WAIT_SECONDS = 0.3
# pytest-xdist appends the group to an id.
_GROUP = re.compile(r"@[\w -]+$")


class Announcer:
    """Announces each context to the processes below this one, and returns when they have confirmed it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._peers: list[socket.socket] = []
        # Those that owe a confirmation are not waited for again.
        self._late: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"{WORKERS}/{self._pid}.socket")
        # Some tests start programs as another user.
        os.chmod(f"{WORKERS}/{self._pid}.socket", 0o666)  # noqa: S103
        self._listener.listen(256)
        self._listener.setblocking(False)

    def announce(self, context: str) -> None:
        # First: a process that connects from now on reads it.
        new = f"{WORKERS}/{self._pid}.new"
        with open(new, "w") as file:
            file.write(context)
        os.replace(new, f"{WORKERS}/{self._pid}")
        self._accept()
        waited = [peer for peer in list(self._peers) if self._send(peer, context.encode()) and peer not in self._late]
        self._await(waited, context.encode())

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except BlockingIOError:
                return
            peer.setblocking(False)
            self._peers.append(peer)

    def _send(self, peer: socket.socket, message: bytes) -> bool:
        try:
            peer.send(message)
        except BlockingIOError:
            # It has been frozen for long. It learns the next one.
            return False
        except OSError:
            self._drop(peer)
            return False
        return True

    def _await(self, peers: list[socket.socket], message: bytes) -> None:
        owing = {*peers, *self._late}
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while any(peer not in self._late for peer in owing):
            # A number above 1,023 is none for `select`.
            poll = select.poll()
            by_number = {peer.fileno(): peer for peer in owing}
            for number in by_number:
                poll.register(number, select.POLLIN)
            ready = poll.poll(max(0, deadline - time.monotonic()) * 1_000)
            if not ready:
                self._late |= owing
                return
            for number, _ in ready:
                peer = by_number[number]
                try:
                    answer = peer.recv(200)
                except OSError:
                    answer = b""
                if not answer:
                    self._drop(peer)
                if not answer or answer == message:
                    owing.discard(peer)
                    self._late.discard(peer)

    def _drop(self, peer: socket.socket) -> None:
        self._late.discard(peer)
        self._peers.remove(peer)
        peer.close()


class RecordingPlugin:
    """Separates the lines of tests, and those of the set-up of fixtures that several tests share."""

    def __init__(self) -> None:
        self._announcer = Announcer()
        self._contexts = open(f"{RAW}/{os.getpid()}.contexts", "w", buffering=1)  # noqa: SIM115 - until the end
        self._number = 0
        self._context = self._new(collection=True)
        self._announcer.announce(self._context)
        self._recorder = Recorder(self._context)
        self._recorder.start()
        follow_forks(self._recorder)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        context = self._new(test=_GROUP.sub("", item.nodeid), fixtures=_shared_fixtures(item))
        self._switch(context)
        try:
            return (yield)
        finally:
            self._write(context=context, seconds=round(time.monotonic() - began, 3))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._context
        self._switch(self._new(fixture=_name(fixturedef)))
        try:
            return (yield)
        finally:
            self._switch(before)

    def _switch(self, context: str) -> None:
        self._context = context
        self._recorder.switch(context)
        self._announcer.announce(context)

    def _new(self, **row: object) -> str:
        context = f"{os.getpid()}.{self._number}"
        self._number += 1
        self._write(context=context, **row)
        return context

    def _write(self, **row: object) -> None:
        self._contexts.write(json.dumps(row) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    # The process that only distributes tests to others runs none.
    if os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(RecordingPlugin())


def _shared_fixtures(item: pytest.Item) -> list[str]:
    known: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return sorted({_name(one) for several in known.values() for one in several if one.scope != "function"})


def _name(fixturedef: pytest.FixtureDef[Any]) -> str:
    return f"{fixturedef.baseid}::{fixturedef.argname}"
