"""The full-screen chat: assembles the widgets, and connects them with the session."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec
from uuid import UUID

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from toolcrib.cli.message_context import command_text, run_command
from toolcrib.cli.models import available_models
from toolcrib.cli.review import NOTHING, decided_lines, review_summary, take_back_line
from toolcrib.cli.slash_commands import SlashCommands, SlashReply, help_lines, model_of, session_line, trust_of
from toolcrib.cli.terminal.composer import Composer
from toolcrib.cli.terminal.inputs import PromptInput
from toolcrib.cli.terminal.pause_panels import ConfirmPanel
from toolcrib.cli.terminal.pause_queue import PauseQueue
from toolcrib.cli.terminal.picker import Picker, PickerEntry
from toolcrib.cli.terminal.review_panel import ReviewPanel
from toolcrib.cli.terminal.session_watcher import SessionWatcher
from toolcrib.cli.terminal.terminal_driver import TerminalDriver
from toolcrib.cli.terminal.transcript import (
    QueuedMessage,
    Transcript,
    gauge,
    queued_lines,
    status_line,
)
from toolcrib.cli.terminal.transcript_view import TranscriptView
from toolcrib.cli.terminal_text import Line, error_text, one_line
from toolcrib.client import AgentOut, ReviewOut, RunOut, ServerUnreachable, SessionOut
from toolcrib.client.http_client import StreamHandle
from toolcrib.core.agents import TrustLevel
from toolcrib.core.errors import Conflict, ToolcribError
from toolcrib.sdk import session_client
from toolcrib.sdk.workspace_location import WorkspaceLocation

P = ParamSpec("P")

# The number of events to load at first, and each time a person scrolls to the top.
_PAGE = 300
# Failed attempts after which the server of another process counts as dead.
_TRIES = 5
_MAX_SESSIONS = 200
_KEYS = (
    "@path attaches a file   !command runs a command of yours in the workspace\n"
    "Esc stop   Ctrl+G undo   Ctrl+O unfold   Ctrl+T trust   Ctrl+S sessions   Ctrl+J new line\n"
    "Ctrl+R earlier messages   Tab approval or last block   PageUp scroll   Ctrl+Z suspend   Ctrl+D quit\n"
    "Drag to select, Ctrl+C copies"
)


def _showing_errors(
    work: "Callable[Concatenate[ChatApp, P], Awaitable[None]]",
) -> "Callable[Concatenate[ChatApp, P], Coroutine[Any, Any, None]]":
    """Shows an error in the chat, instead of raising it."""

    @wraps(work)
    async def run(self: "ChatApp", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            await work(self, *args, **kwargs)
        except ToolcribError as error:
            await self.remark(error_text(error), is_bad=True)

    return run


class ChatApp(App[None]):
    """One conversation at a time. ``lost`` is set when the server of another process has ended."""

    CSS_PATH = "look.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "copy_or_interrupt", priority=True, show=False),
        Binding("ctrl+d", "leave", priority=True, show=False),
        Binding("ctrl+z", "suspend_process", priority=True, show=False),
        Binding("ctrl+g", "undo", show=False),
        Binding("escape", "stop", show=False),
        Binding("ctrl+t", "trust", show=False),
        Binding("ctrl+o", "fold", show=False),
        Binding("ctrl+r", "history", show=False),
        Binding("ctrl+s", "sessions", show=False),
    ]

    class EventsReceived(Message):
        """The watcher has received events, in its thread."""

    @dataclass
    class CommandOutput(Message):
        """The person's own command has written something."""

        text: str

    def __init__(
        self, location: WorkspaceLocation, session: SessionOut, agent: AgentOut, *, first: str = "", note: str = ""
    ) -> None:
        super().__init__(driver_class=TerminalDriver)
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
        self._stopping: str | None = None
        self._pending_apply: Callable[[], SlashReply] | None = None
        # The person's own command, while it runs.
        self._command: StreamHandle | None = None

    def compose(self) -> ComposeResult:
        self._view, self._pauses = TranscriptView(), PauseQueue(self.location)
        self._composer = Composer(self.location)
        self._prompt = self._composer.prompt
        yield Static(id="status")
        yield self._view
        yield Static(id="queued")
        yield self._pauses
        yield self._composer
        yield Static(id="hints")

    async def on_mount(self) -> None:
        self._prompt.focus()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.exit, None, 128 + signal.SIGTERM)
        if isinstance(driver := self._driver, TerminalDriver):
            loop.add_signal_handler(signal.SIGHUP, driver.hang_up)
        await self._open()
        if self._note:
            await self.remark(self._note)
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
        if self.transcript.has_review:
            self.transcript.has_review = False
            self.run_worker(self._announce_review())
        self._refresh_lines()

    @_showing_errors
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
            self.location,
            self.session.id,
            after=self.transcript.seen,
            notify=lambda: self.post_message(self.EventsReceived()),
        )
        self._watcher.start()
        self._refresh_lines()

    async def _load_history(self) -> None:
        client, transcript = self.location.client, self.transcript
        of_session = (self.location.id, self.session.id)
        for message in await asyncio.to_thread(client.events, *of_session, after=self._earliest):
            transcript.apply(message)
        # Old events may be outdated: the server sends open pauses again, and the next request fetches active runs.
        transcript.waiting.clear()
        runs = await asyncio.to_thread(client.runs, *of_session)
        transcript.run_id = next((str(run.id) for run in runs if run.state not in ("ended", "queued")), None)
        transcript.queued = {
            str(run.id): transcript.queued.get(str(run.id)) or QueuedMessage(run.prompt_preview, run.held)
            for run in reversed(runs)
            if run.state == "queued"
        }
        await self._view.show(transcript.blocks)
        self._view.has_earlier = self._earliest > 0

    @_showing_errors
    async def on_transcript_view_wants_earlier(self) -> None:
        end, start = self._earliest, max(0, self._earliest - _PAGE)
        found = await asyncio.to_thread(
            self.location.client.events, self.location.id, self.session.id, after=start, limit=end - start
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
            await self.remark(f"{watcher.trouble.message} Retrying …", is_bad=True)
        elif watcher.trouble is None and self._is_away:
            self._is_away = False
            await self.remark("Connected again.")

    # Input

    async def on_prompt_input_sent(self, event: PromptInput.Sent) -> None:
        if event.text.startswith("/"):
            await self._run_command(event.text)
        elif event.text.startswith("!") and (command := event.text[1:].strip()):
            self.run_worker(self._execute(command))
        else:
            await self._send(event.text)

    def on_prompt_input_left_for(self) -> None:
        if not self._pauses.take_keys() and (call := self._view.last_call) is not None:
            call.focus()

    def on_transcript_view_typed(self, event: TranscriptView.Typed) -> None:
        self._prompt.focus()
        self._prompt.insert(event.character)

    def on_prompt_input_paged(self, event: PromptInput.Paged) -> None:
        scroll = self._view.scroll_page_up if event.up else self._view.scroll_page_down
        scroll(animate=False)

    async def action_undo(self) -> None:
        await self._run_command("/undo")

    @_showing_errors
    async def on_prompt_input_send_held_wanted(self) -> None:
        """Sends the messages that a stop held, in their order."""
        for run_id in self.transcript.held:
            # Somebody else has sent or cancelled it.
            with suppress(Conflict):
                await asyncio.to_thread(self.location.client.release, self.location.id, UUID(run_id))

    @_showing_errors
    async def _send(self, text: str) -> None:
        conversation = session_client.SessionClient(self.location, self.session)
        self.unsent = text
        # As it is now: what is attached meanwhile goes with the next message.
        attached = self._composer.attached

        def send() -> RunOut:
            message = self._composer.prepare(text, attached)
            return conversation.send(message.text, attachments=message.attachments)

        try:
            run = await asyncio.to_thread(send)
        except ToolcribError:
            self._prompt.put(text)
            raise
        self.unsent = ""
        self._composer.detach(attached)
        self.session = conversation.session
        if run.state != "queued":
            self.transcript.run_id = self.transcript.run_id or str(run.id)
        self._refresh_lines()

    @_showing_errors
    async def _execute(self, command: str) -> None:
        """Executes the person's own command in the workspace. Its output goes with the next message."""
        if self._command is not None:
            await self.remark("Your last command is still running. Esc stops it.")
            self._prompt.put(f"!{command}")
            return
        handle = self._command = StreamHandle()
        self._refresh_lines()

        def receive(text: str) -> None:
            self.post_message(self.CommandOutput(text))

        try:
            result = await asyncio.to_thread(
                run_command, self.location, self.session.id, command, on_output=receive, handle=handle
            )
        except ServerUnreachable:
            if not handle.is_cut:
                raise
            return
        finally:
            self._command = None
            self._refresh_lines()
        self._composer.attach(command_text(command, result))

    async def on_chat_app_command_output(self, event: CommandOutput) -> None:
        if (block := self.transcript.add_own_output(event.text)) is not None:
            await self._view.show([block])

    async def _run_command(self, text: str) -> None:
        if text in ("/sessions", "/resume"):
            self.action_sessions()
            return
        if text == "/model":
            self.run_worker(self._pick_model(), exclusive=True)
            return
        if text == "/review":
            await self._review()
            return
        if text == "/help":
            await self.remark([*help_lines(), Text(_KEYS, style="dim")])
            return
        slash = SlashCommands(self.location, self.session, self.agent)
        await self._show_reply(lambda: slash.run(text))

    @_showing_errors
    async def _show_reply(self, work: Callable[[], SlashReply]) -> None:
        reply = await asyncio.to_thread(work)
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
            await self.remark(reply.lines)
        if reply.attachment is not None:
            self._composer.attach(reply.attachment)
        if reply.run is not None:
            await self._view.show(self.transcript.compact(str(reply.run.id)))
        self._refresh_lines()

    async def _load_review(self) -> ReviewOut:
        return await asyncio.to_thread(self.location.client.review, self.location.id, self.session.id)

    @_showing_errors
    async def _announce_review(self) -> None:
        """Says in one line that there is something to review. The person may go on without it."""
        shown = await self._load_review()
        if shown.total:
            await self.remark([Text.assemble(review_summary(shown), " — /review to look, keep or revert")])

    @_showing_errors
    async def _review(self) -> None:
        shown = await self._load_review()
        if shown.total:
            await self._pauses.review(shown)
        else:
            await self.remark(NOTHING)

    @on(ReviewPanel.Decided)
    @_showing_errors
    async def _reviewed(self, event: ReviewPanel.Decided) -> None:
        await self._pauses.close()
        if event.decisions:
            decide = self.location.client.decide_review
            done = await asyncio.to_thread(decide, self.location.id, event.shown, event.decisions)
            # The event of the decision says the rest.
            has_more = done.conflicts or done.open
            await self.remark(decided_lines(done) if has_more else [take_back_line(done)])
        await self._pauses.handle(self.transcript)

    @on(ConfirmPanel.Decided)
    async def _confirmed(self, event: ConfirmPanel.Decided) -> None:
        apply, self._pending_apply = self._pending_apply, None
        await self._pauses.close()
        if event.yes and apply is not None:
            await self._show_reply(apply)
        await self._pauses.handle(self.transcript)

    @on(PauseQueue.Unread)
    async def _show_unread_pause(self) -> None:
        await self._pauses.handle(self.transcript)

    @on(PauseQueue.Said)
    async def _told_by_panel(self, event: PauseQueue.Said) -> None:
        await self.remark(event.text, is_bad=True)

    # Keys

    @_showing_errors
    async def action_stop(self) -> None:
        run_id = self.transcript.run_id
        if self._command is not None:
            self._command.close()
            return
        if run_id is None:
            await self._take_back_held()
            return
        self._stopping = run_id
        self._refresh_lines()
        # The run has already ended.
        with suppress(Conflict):
            await asyncio.to_thread(self.location.client.cancel, self.location.id, UUID(run_id))

    async def _take_back_held(self) -> None:
        """Puts the newest held message back into the message box."""
        if not self.transcript.held or self._prompt.text:
            return
        run_id = self.transcript.held[-1]
        text = self.transcript.queued[run_id].text
        await asyncio.to_thread(self.location.client.cancel, self.location.id, UUID(run_id))
        self._prompt.put(text)

    def action_suspend_process(self) -> None:
        driver = self._driver
        if not isinstance(driver, TerminalDriver) or not driver.suspend():
            self.notify("No shell can resume this program, so it is not suspended.")

    async def action_copy_or_interrupt(self) -> None:
        if text := self._prompt.selected_text if self._prompt.has_focus else "":
            self._copy(text)
        elif text := self.screen.get_selected_text() or "":
            # So that the next Ctrl+C stops the run.
            self.screen.clear_selection()
            self._copy(text)
        else:
            await self._interrupt()

    def _copy(self, text: str) -> None:
        self.copy_to_clipboard(text)
        lines = text.count("\n") + 1
        self.notify(f"Copied {'1 line' if lines == 1 else f'{lines:,} lines'}.")

    async def _interrupt(self) -> None:
        if self.transcript.run_id is not None or self._command is not None:
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
        if (call := self._view.last_call) is not None:
            call.action_fold()

    def action_sessions(self) -> None:
        self.run_worker(self._pick_session(), exclusive=True)

    async def action_history(self) -> None:
        entries = [PickerEntry(text, one_line(text, 200)) for text in self._prompt.sent_history.newest_first]
        picker = Picker("Earlier messages", entries, empty="No earlier message has this.")
        # Awaited, so that what is typed meanwhile goes to the filter.
        await self.push_screen(picker, lambda text: None if text is None else self._prompt.put(text))

    @_showing_errors
    async def _pick_session(self) -> None:
        found = await asyncio.to_thread(self.location.client.sessions, self.location.id, limit=_MAX_SESSIONS)
        entries = [PickerEntry(str(one.id), session_line(one, here=one.id == self.session.id)) for one in found]
        chosen = await self.push_screen_wait(Picker("Continue a session", entries, empty="No session has this."))
        if chosen is not None and chosen != str(self.session.id):
            await self._run_command(f"/resume {chosen}")

    @_showing_errors
    async def _pick_model(self) -> None:
        models, failures = await asyncio.to_thread(available_models, self.location)
        for failure in failures:
            await self.remark(failure, is_bad=True)
        now = model_of(self.agent)
        names = [f"{provider}/{one.id}" for provider, one in models if one.supports_tools]
        entries = [PickerEntry(name, f"{'*' if name == now else ' '} {one_line(name, 100)}") for name in names]
        chosen = await self.push_screen_wait(Picker("Choose a model", entries, empty="No model has this name."))
        if chosen is not None:
            await self._run_command(f"/model {chosen}")

    # Status and hints

    def on_resize(self) -> None:
        # Afterwards: until this event is handled, the size is the old one, and the line would be cut at its end.
        self.call_later(self._refresh_lines)

    def _refresh_lines(self) -> None:
        doing = (self.transcript.run_wait or "working") if self.transcript.run_id else "ready"
        if self.transcript.run_id and self.transcript.run_id == self._stopping:
            doing = "cancelling"
        elif self.transcript.waiting:
            doing = f"{len(self.transcript.waiting)} pending"
        if self._command is not None:
            doing = "your command runs"
        if self._is_away:
            doing = "no connection"
        trust, usage = trust_of(self.session, self.agent), gauge(self.transcript.usage)
        status = status_line(
            self.location.workspace.name,
            self.agent.name,
            model_of(self.agent),
            state=f"{doing}  {self.transcript.mode} · {trust} · {usage}",
            width=self.size.width,
        )
        self.query_one("#status", Static).update(Text(status, no_wrap=True))
        first = "Esc cancel" if self.transcript.run_id or self._command else "^S sessions"
        hints = f"{first}  / commands  @ file  ! shell  ^R find  ^G undo  ^T trust  ^D quit"
        self.query_one("#hints", Static).update(Text(hints, no_wrap=True, overflow="ellipsis"))

        queued = self.query_one("#queued", Static)
        queued.display = bool(self.transcript.queued)
        queued.update(queued_lines(self.transcript.queued.values(), width=self.size.width))

    async def remark(self, text: str | Sequence[Line], *, is_bad: bool = False) -> None:
        await self._view.show([self.transcript.remark(text, is_bad=is_bad)])
