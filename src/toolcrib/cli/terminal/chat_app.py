"""The full-screen chat: assembles the widgets, and connects them with the session."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, TypeVar
from uuid import UUID

import typer
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from toolcrib.cli.slash_commands import SlashCommands, SlashReply, model_of, trust_of
from toolcrib.cli.terminal.inputs import CommandSuggestions, PromptHistory, PromptInput, SessionPicker
from toolcrib.cli.terminal.pause_panels import ConfirmPanel
from toolcrib.cli.terminal.pause_queue import PauseQueue
from toolcrib.cli.terminal.session_watcher import SessionWatcher
from toolcrib.cli.terminal.transcript import StatusLine, Transcript, status_line
from toolcrib.cli.terminal.transcript_view import TranscriptView
from toolcrib.client import AgentData, ServerUnreachable, SessionData
from toolcrib.core.agents import TrustLevel
from toolcrib.core.errors import Conflict, ToolcribError
from toolcrib.sdk import session_client
from toolcrib.sdk.workspace_location import WorkspaceLocation

T = TypeVar("T")

# The number of events to load at first, and each time a person scrolls to the top.
_PAGE = 300
# Failed attempts after which the server of another process counts as dead.
_TRIES = 5
_MAX_SESSIONS = 50


class ChatApp(App[None]):
    """One conversation at a time. ``lost`` is set when the server of another process has ended."""

    CSS_PATH = "look.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", priority=True, show=False),
        Binding("ctrl+d", "leave", priority=True, show=False),
        Binding("escape", "stop", show=False),
        Binding("ctrl+t", "trust", show=False),
        Binding("ctrl+o", "fold", show=False),
        Binding("ctrl+r", "sessions", show=False),
    ]

    class EventsReceived(Message):
        """The watcher has received events."""

    def __init__(
        self, location: WorkspaceLocation, session: SessionData, agent: AgentData, *, first: str = "", note: str = ""
    ) -> None:
        super().__init__()
        self.location = location
        self.session = session
        self.agent = agent
        self.transcript = Transcript(mode=session.mode)
        self.unsent = ""
        self.lost: ServerUnreachable | None = None
        self._first = first
        self._note = note
        self._watcher: SessionWatcher | None = None
        self._earliest = 0
        self._is_away = False
        self._pending_apply: Callable[[], SlashReply] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="status")
        yield TranscriptView()
        yield PauseQueue(self.location)
        yield CommandSuggestions()
        yield PromptInput(PromptHistory(self.location.notes))
        yield Static(id="hints")

    async def on_mount(self) -> None:
        self._prompt.focus()
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)
        await self._attempt(self._open())
        if self._note:
            await self._remark(self._note)
        if self._first:
            await self._send(self._first)

    def on_unmount(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()

    # Events

    async def on_chat_app_events_received(self) -> None:
        watcher = self._watcher
        if watcher is None:
            return
        touched = []
        while watcher.received:
            touched += self.transcript.apply(watcher.received.popleft(), time.monotonic())
        await self._view.show(touched)
        await self._show_connection(watcher)
        await self._pauses.handle(self.transcript)
        self._refresh_lines()

    async def _open(self) -> None:
        """Shows the newest events of the session and subscribes to it."""
        if self._watcher is not None:
            self._watcher.stop()
        self.transcript = Transcript(mode=self.session.mode)
        self._earliest = max(0, self.session.last_seq - _PAGE)
        await self._view.begin_anew()
        await self._pauses.close()
        if self.session.last_seq:
            await self._load_history()
        self._watcher = SessionWatcher(
            self.location, self.session.id, after=self.transcript.seen, notify=self._on_events
        )
        self._watcher.start()
        self._refresh_lines()

    def _on_events(self) -> None:
        """Called in the watcher's thread."""
        self.post_message(self.EventsReceived())

    async def _load_history(self) -> None:
        client, transcript = self.location.client, self.transcript
        for message in await self._asked(
            lambda: client.events(self.location.id, self.session.id, after=self._earliest)
        ):
            transcript.apply(message)
        # Old events may be outdated: the server sends open pauses again, and the next request fetches active runs.
        transcript.waiting.clear()
        runs = await self._asked(lambda: client.runs(self.location.id, self.session.id))
        transcript.run_id = next((str(run.id) for run in runs if run.state != "ended"), None)
        await self._view.show(transcript.blocks)
        self._view.has_earlier = self._earliest > 0

    async def on_transcript_view_wants_earlier(self) -> None:
        await self._attempt(self._fetch_earlier())

    async def _fetch_earlier(self) -> None:
        end, start = self._earliest, max(0, self._earliest - _PAGE)
        found = await self._asked(
            lambda: self.location.client.events(self.location.id, self.session.id, after=start, limit=end - start)
        )
        earlier = Transcript()
        for message in found:
            earlier.apply(message)
        self._earliest = start
        await self._view.put_before(earlier.blocks, more=start > 0)

    async def _show_connection(self, watcher: SessionWatcher) -> None:
        if watcher.trouble is not None and watcher.failures >= _TRIES and self.location.served_elsewhere:
            self.lost = ServerUnreachable(watcher.trouble.message)
            self.unsent = self.unsent or self._prompt.text
            self.exit()
        elif watcher.trouble is not None and watcher.failures > 1 and not self._is_away:
            self._is_away = True
            await self._remark(f"{watcher.trouble.message} Retrying …", is_bad=True)
        elif watcher.trouble is None and self._is_away:
            self._is_away = False
            await self._remark("Connected again.")

    # Input

    async def on_prompt_input_sent(self, event: PromptInput.Sent) -> None:
        if event.text.startswith("/"):
            await self._run_command(event.text)
        else:
            await self._send(event.text)

    def on_prompt_input_typed(self, event: PromptInput.Typed) -> None:
        self.query_one(CommandSuggestions).show(event.fitting)

    def on_prompt_input_left_for(self) -> None:
        if not self._pauses.take_keys():
            self.screen.focus_next()

    def on_prompt_input_paged(self, event: PromptInput.Paged) -> None:
        if event.up:
            self._view.scroll_page_up(animate=False)
        else:
            self._view.scroll_page_down(animate=False)

    async def on_prompt_input_undo_wanted(self) -> None:
        await self._run_command("/undo")

    async def _send(self, text: str) -> None:
        conversation = session_client.SessionClient(self.location, self.session)
        self.unsent = text
        try:
            run = await self._asked(lambda: conversation.send(text))
        except ToolcribError as error:
            self._prompt.put(text)
            await self._remark(error.message, is_bad=True)
            return
        self.unsent = ""
        self.session = conversation.session
        self.transcript.run_id = self.transcript.run_id or str(run.id)
        self._refresh_lines()

    async def _run_command(self, text: str) -> None:
        if text in ("/sessions", "/resume"):
            self.action_sessions()
            return
        slash = SlashCommands(self.location, self.session, self.agent)
        await self._attempt(self._show_reply(lambda: slash.run(text)))

    async def _show_reply(self, work: Callable[[], SlashReply]) -> None:
        reply = await self._asked(work)
        if reply.leave:
            self.exit()
            return
        self.agent = reply.agent or self.agent
        if reply.session is not None:
            is_other = reply.session.id != self.session.id
            self.session = reply.session
            if is_other:
                await self._open()
        if reply.apply is not None:
            self._pending_apply = reply.apply
            await self._pauses.confirm(list(reply.lines))
        elif reply.lines:
            await self._remark(Text("\n").join(reply.lines))
        self._refresh_lines()

    @on(ConfirmPanel.Decided)
    async def _confirmed(self, event: ConfirmPanel.Decided) -> None:
        apply, self._pending_apply = self._pending_apply, None
        await self._pauses.close()
        if event.yes and apply is not None:
            await self._attempt(self._show_reply(apply))
        await self._pauses.handle(self.transcript)

    @on(PauseQueue.Said)
    async def _told_by_panel(self, event: PauseQueue.Said) -> None:
        await self._remark(event.text, is_bad=True)

    # Keys

    async def action_stop(self) -> None:
        await self._attempt(self._stop())

    async def _stop(self) -> None:
        run_id = self.transcript.run_id
        if run_id is None:
            return
        await self._remark("Cancelling …")
        # The run has already ended.
        with suppress(Conflict):
            await self._asked(lambda: self.location.client.cancel(self.location.id, UUID(run_id)))

    async def action_interrupt(self) -> None:
        if self.transcript.run_id is not None:
            await self.action_stop()
        elif self._prompt.text:
            self._prompt.put("")
        else:
            self.notify("Press Ctrl+D to quit.")

    def action_leave(self) -> None:
        if self._prompt.has_focus and self._prompt.text:
            self._prompt.action_delete_right()
            return
        self.exit()

    async def action_trust(self) -> None:
        levels = [str(level) for level in TrustLevel]
        at = levels.index(trust_of(self.session, self.agent))
        await self._run_command(f"/trust {levels[(at + 1) % len(levels)]}")

    def action_fold(self) -> None:
        self._view.fold_last()

    def action_sessions(self) -> None:
        self.run_worker(self._attempt(self._pick()), exclusive=True)

    async def _pick(self) -> None:
        found = await self._asked(lambda: self.location.client.sessions(self.location.id, limit=_MAX_SESSIONS))
        chosen = await self.push_screen_wait(SessionPicker(found, here=self.session.id))
        if chosen is not None and chosen != str(self.session.id):
            await self._run_command(f"/resume {chosen}")

    # Status and hints

    def on_resize(self) -> None:
        self._refresh_lines()

    def _refresh_lines(self) -> None:
        doing = "working" if self.transcript.run_id else "ready"
        if self.transcript.waiting:
            doing = f"{len(self.transcript.waiting)} pending"
        if self._is_away:
            doing = "no connection"
        status = StatusLine(
            where=self.location.workspace.name,
            agent=self.agent.name,
            model=model_of(self.agent),
            mode=self.transcript.mode,
            trust=trust_of(self.session, self.agent),
            usage=self.transcript.usage,
            doing=doing,
        )
        self.query_one("#status", Static).update(Text(status_line(status, self.size.width), no_wrap=True))
        first = "Esc cancel" if self.transcript.run_id else "^R sessions"
        hints = f"{first}  / commands  ^J new line  ^Z undo  ^T trust  ^O unfold  ^D quit"
        self.query_one("#hints", Static).update(Text(hints, no_wrap=True, overflow="ellipsis"))

    async def _remark(self, text: str | Text, *, is_bad: bool = False) -> None:
        await self._view.show([self.transcript.remark(text, is_bad=is_bad)])

    async def _attempt(self, work: Awaitable[None]) -> None:
        """Awaits the work, and shows its error."""
        try:
            await work
        except ToolcribError as error:
            await self._remark(error.message, is_bad=True)

    async def _asked(self, question: Callable[[], T]) -> T:
        """Calls the client in a thread, because it blocks."""
        return await asyncio.to_thread(question)

    @property
    def _view(self) -> TranscriptView:
        return self.query_one(TranscriptView)

    @property
    def _pauses(self) -> PauseQueue:
        return self.query_one(PauseQueue)

    @property
    def _prompt(self) -> PromptInput:
        return self.query_one(PromptInput)


class ScreenChat:
    """The full-screen chat, with the interface of ``LineChat``."""

    def __init__(self, location: WorkspaceLocation, session: SessionData, agent: AgentData) -> None:
        self.session = session
        self.unsent = ""
        self._location = location
        self._agent = agent

    def go_on(self, first: str = "", *, note: str = "") -> None:
        """Runs until the person quits. Raises ServerUnreachable if the process that served the chat has ended."""
        app = ChatApp(self._location, self.session, self._agent, first=first, note=note)
        with _handlers_kept():
            app.run()
        self.session, self.unsent = app.session, app.unsent
        if app.lost is not None:
            raise app.lost
        if app.transcript.seen:
            typer.echo(f"Continue with: toolcrib chat --resume {str(app.session.id)[-8:]}", err=True)
        raise typer.Exit(app.return_code or 0)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restores the signal handlers afterwards. Meanwhile the chat has its own, which restore the terminal."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
