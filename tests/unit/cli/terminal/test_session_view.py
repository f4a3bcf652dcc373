"""The session's events and pending approvals reach the screen, however the server answers and in whatever order."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from textual.app import App, ComposeResult

from tests.unit.cli.terminal.test_widgets import approval
from tests.wait_until import PATIENCE
from toolcrib.api.session_stream import encoded
from toolcrib.cli.terminal.completions import command_completions
from toolcrib.cli.terminal.inputs import PromptHistory, PromptInput
from toolcrib.cli.terminal.pause_panels import ApprovalPanel
from toolcrib.cli.terminal.pause_queue import PauseQueue
from toolcrib.cli.terminal.session_watcher import SessionWatcher
from toolcrib.cli.terminal.transcript import Transcript
from toolcrib.client import ApprovalOut, Client, WorkspaceOut
from toolcrib.sdk.workspace_location import WorkspaceLocation

# Status, type and body of a response.
Answer = tuple[int, str, bytes]
BUSY: Answer = (500, "application/json", json.dumps({"success": False, "error": "Busy.", "code": "X"}).encode())


@contextmanager
def served(answer: Callable[[str, str], Answer]) -> Iterator[WorkspaceLocation]:
    """A workspace of a server on a real socket, which answers by the request's method and path."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, kind, body = answer(self.command, self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    now = "2026-01-01T00:00:00Z"
    facts = {"id": uuid4(), "name": "pond", "role": "owner", "created_at": now, "max_trust": None}
    workspace = WorkspaceOut.model_validate(facts)
    try:
        with Client(f"http://127.0.0.1:{server.server_port}", "token") as client:
            yield WorkspaceLocation(client, workspace, None)
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def shown_json(pause: ApprovalOut) -> Answer:
    return 200, "application/json", pause.model_dump_json(by_alias=True).encode()


def test_events_are_received_after_answers_that_cannot_be_read() -> None:
    event = {"type": "chat:tool-confirm", "payload": {"toolId": "1\x85\u2028", "pauseId": "2"}, "seq": 3}
    answers: list[Answer] = [
        (502, "text/html", b"<h1>Bad gateway</h1>"),
        (200, "text/event-stream", b'data: {"type": "cut\n\n'),
        (200, "text/event-stream", b'data: {"unknown": true}\n\n'),
        (200, "text/event-stream", encoded(event)),
    ]
    arrived = threading.Event()

    def notify() -> None:
        if watcher.received:
            arrived.set()

    with served(lambda *_: answers.pop(0) if answers else BUSY) as location:
        watcher = SessionWatcher(location, uuid4(), after=0, notify=notify)
        watcher.start()
        assert arrived.wait(PATIENCE)
        watcher.stop()
        watcher.join(PATIENCE)

    assert watcher.received.popleft().model_dump() == event


class Stage(App[None]):
    """The queue of pauses above the prompt, as in the chat."""

    def __init__(self, location: WorkspaceLocation) -> None:
        super().__init__()
        self.location = location
        self.transcript = Transcript()
        self.said: list[str] = []

    def compose(self) -> ComposeResult:
        yield PauseQueue(self.location)
        yield PromptInput(PromptHistory(None), command_completions)

    def on_pause_queue_said(self, event: PauseQueue.Said) -> None:
        self.said.append(event.text)

    async def on_pause_queue_unread(self) -> None:
        await self.query_one(PauseQueue).handle(self.transcript)

    async def pending(self, *pauses: ApprovalOut) -> None:
        self.transcript.waiting = dict.fromkeys(str(one.id) for one in pauses)
        await self.query_one(PauseQueue).handle(self.transcript)


async def test_the_next_approval_stays_if_its_event_is_faster_than_the_reply_to_the_last_decision() -> None:
    first, second = approval(), approval()
    pauses = {str(one.id): one for one in (first, second)}
    asked, replied = threading.Event(), threading.Event()

    def answer(method: str, path: str) -> Answer:
        if method == "POST":
            asked.set()
            replied.wait(PATIENCE)
            return shown_json(first)
        return shown_json(pauses[path.rpartition("/")[2]])

    with served(answer) as location:
        app = Stage(location)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.pending(first)
            await pilot.pause()
            # It waits for what the key does.
            pressing = asyncio.create_task(pilot.press("y"))
            assert await asyncio.to_thread(asked.wait, PATIENCE)
            await app.pending(second)
            replied.set()
            await pressing
            await pilot.pause()
            [panel] = app.query(ApprovalPanel)
            assert panel.approval.id == second.id


async def test_an_approval_that_could_not_be_loaded_is_shown_when_the_server_answers() -> None:
    pending = approval()
    answers = [BUSY, BUSY]
    with served(lambda *_: answers.pop() if answers else shown_json(pending)) as location:
        app = Stage(location)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.pending(pending)
            while not app.query(ApprovalPanel):
                await pilot.pause(0.1)
            assert list(app.transcript.waiting) == [str(pending.id)]
            assert app.said == ["Busy. Retrying …"]
