"""Record which lines of the package a Python process runs, apart for each test that runs at that moment.

It starts in every Python process of the virtualenv while a recording is under way, from a ``.pth`` file: tests start
servers with a clean environment, so that no variable would reach them. A process belongs to the test process among
its ancestors, which says over a socket when the next test begins and waits until its processes have confirmed it: the
lines of a server are those of the test that made it run them. Only tests and this file know of the recording.

The lines are found by coverage's tracer in C. It is loaded without the package around it, which takes 0.1 s to import,
and which loses what other threads run while it saves.
"""

import _thread
import atexit
import glob
import importlib.machinery
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = str(Path(__file__).parent.parent.parent)
SOURCE: Final = f"{ROOT}/src/toolcrib/"
FOLDER: Final = f"{ROOT}/.cache/planted"
# Exists while a recording is under way: a `.pth` file that was left behind does nothing.
UNDER_WAY: Final = f"{FOLDER}/recording"
WORKERS: Final = f"{FOLDER}/workers"
RAW: Final = f"{FOLDER}/raw"
# What a process that is killed loses at most.
_SAVE_EVERY_SECONDS: Final = 0.2
_LARGEST_MESSAGE: Final = 200
_has_started = False


class Recorder:
    """The lines that this process has run, by context: a test, or a fixture that several tests share."""

    def __init__(self, context: str) -> None:
        self._context = context
        self._lines: dict[str, set[int]] = {}
        self._saved: dict[str, set[int]] = {}
        self._file: int | None = None
        self._lock = _thread.allocate_lock()
        self._tracer_type, self._disposition_type = _tracer_types()
        self._cache: dict[str, Any] = {}

    def start(self) -> None:
        threading.settrace(self._install)
        self._new_tracer().start()
        atexit.register(self.save)
        end: Callable[[int], Any] = os._exit

        # Processes that were forked end with it.
        def save_and_end(status: int) -> None:
            self.save()
            end(status)

        os._exit = save_and_end  # type: ignore[assignment]

    def switch(self, context: str) -> None:
        self.save()
        self._context, self._saved = context, {}

    def save(self) -> None:
        """Append the lines that ran since the last time. Loses none that another thread runs meanwhile."""
        with self._lock:
            rows = []
            for path, lines in self._lines.copy().items():
                ran = set()
                # Each pop is atomic; the tracer goes on adding to the set.
                while lines:
                    ran.add(lines.pop())
                saved = self._saved.setdefault(path, set())
                if new := ran - saved:
                    saved |= new
                    rows.append(f"{self._context}\t{path[len(SOURCE) :]}\t{','.join(map(str, new))}\n")
            if rows:
                if self._file is None:
                    self._file = os.open(f"{RAW}/{os.getpid()}.lines", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                os.write(self._file, "".join(rows).encode())

    def forget_parent(self) -> None:
        """Begin anew in a process that was forked: the lines so far are its parent's."""
        self._lock = _thread.allocate_lock()
        self._saved = {}
        for lines in self._lines.values():
            lines.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _install(self, frame: Any, event: str, argument: Any) -> Any:
        """Begin to trace a thread, at its first call."""
        trace = self._new_tracer().start()
        return trace(frame, event, argument)

    def _new_tracer(self) -> Any:
        tracer = self._tracer_type()
        tracer.data = self._lines
        tracer.trace_arcs = False
        tracer.should_trace = self._disposition
        tracer.should_trace_cache = self._cache
        tracer.warn = lambda *_, **__: None
        tracer.lock_data = tracer.unlock_data = _nothing
        # The tracer takes none of these for granted: without a value it crashes the process.
        tracer.concur_id_func = tracer.should_start_context = tracer.switch_context = None
        tracer.check_include = tracer.disable_plugin = tracer.file_tracers = None
        return tracer

    def _disposition(self, path: str, _frame: Any) -> Any:
        disposition = self._disposition_type()
        disposition.original_filename = disposition.canonical_filename = disposition.source_filename = path
        disposition.trace = path.startswith(SOURCE)
        disposition.reason = ""
        disposition.file_tracer = None
        disposition.has_dynamic_filename = False
        return disposition


def start_in_child() -> None:
    """Record in a process that a test process started. Does nothing in others."""
    global _has_started
    # Some interpreters read their `.pth` files twice, and the tracer's module can be loaded once.
    if _has_started or not os.path.exists(UNDER_WAY) or (worker := _worker_above()) is None:
        return
    connection = _connect(worker)
    if connection is None:
        return
    _has_started = True
    recorder = Recorder(_current(worker))
    recorder.start()
    _listen(recorder, connection)
    follow_forks(recorder)


def follow_forks(recorder: Recorder) -> None:
    """Go on in processes that are forked: they have the tracer, but no thread that listens."""

    def begin() -> None:
        recorder.forget_parent()
        worker = _worker_above()
        connection = None if worker is None else _connect(worker)
        if worker is not None and connection is not None:
            recorder.switch(_current(worker))
            _listen(recorder, connection)

    os.register_at_fork(after_in_child=begin)


def _listen(recorder: Recorder, connection: socket.socket) -> None:
    # Not `threading.Thread`: the program counts its threads.
    _thread.start_new_thread(_attend, (recorder, connection))


def _attend(recorder: Recorder, connection: socket.socket) -> None:
    sys.settrace(None)
    connection.settimeout(_SAVE_EVERY_SECONDS)
    try:
        while True:
            try:
                message = connection.recv(_LARGEST_MESSAGE)
            except TimeoutError:
                recorder.save()
                continue
            if not message:
                break
            recorder.switch(message.decode())
            connection.send(message)
    except OSError:
        # The process closed all its descriptors, or the test process has ended.
        pass
    recorder.save()


def _connect(worker: int) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"{WORKERS}/{worker}.socket")
    except OSError:
        connection.close()
        return None
    return connection


def _current(worker: int) -> str:
    """Return the context at the moment. To be read after the connection is made: later ones are announced on it."""
    with open(f"{WORKERS}/{worker}") as file:
        return file.read()


def _worker_above() -> int | None:
    process = os.getpid()
    while process > 1:
        try:
            with open(f"/proc/{process}/stat") as file:
                # The name in parentheses may contain anything.
                process = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return None
        if os.path.exists(f"{WORKERS}/{process}"):
            return process
    return None


def _tracer_types() -> tuple[Any, Any]:
    folder = next(path for path in sys.path if path.endswith("site-packages") and os.path.isdir(f"{path}/coverage"))
    (path,) = glob.glob(f"{folder}/coverage/tracer.*.so")
    loader = importlib.machinery.ExtensionFileLoader("coverage.tracer", path)
    spec = importlib.util.spec_from_loader("coverage.tracer", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module.CTracer, module.CFileDisposition


def _nothing() -> None:
    return None
