"""Shows paused calls one at a time, and sends the decisions and answers. Also shows the review that a person opens."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from textual import on
from textual.containers import Container
from textual.message import Message

from toolcrib.cli.answer import answers_to
from toolcrib.cli.decision_prompts import ReviewedPlan, plan_asked_about
from toolcrib.cli.terminal.inputs import PromptInput
from toolcrib.cli.terminal.pause_panels import ApprovalPanel, ConfirmPanel, Panel, QuestionPanel
from toolcrib.cli.terminal.review_panel import ReviewPanel
from toolcrib.cli.terminal.transcript import Transcript
from toolcrib.cli.terminal_text import Line, error_text, invalid_answer, one_line
from toolcrib.client import ApprovalOut, QuestionPauseOut, ReviewOut
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound, ToolcribError
from toolcrib.core.paused_calls import PauseState
from toolcrib.sdk.workspace_location import WorkspaceLocation

_RETRY_SECONDS = 1.0


class PauseQueue(Container):
    """Empty, or one panel. It does not take the focus while a person is typing."""

    @dataclass
    class Said(Message):
        """A notice for the person."""

        text: str

    class Unread(Message):
        """A pending item could not be loaded. It is still pending: try again."""

    def __init__(self, location: WorkspaceLocation) -> None:
        super().__init__(id="waiting")
        self.display = False
        self._location = location
        self._shown: str | None = None
        # Pauses that this terminal has decided or answered.
        self._decided: set[str] = set()
        # Pauses that could not be loaded, so that each is said once.
        self._unread: set[str] = set()
        self._turn = asyncio.Lock()

    async def handle(self, transcript: Transcript) -> None:
        """Shows the oldest pending item, and closes a panel that was decided elsewhere."""
        async with self._turn:
            if self.query("ConfirmPanel, ReviewPanel") or (
                self._shown is not None and self._shown in transcript.waiting
            ):
                return
            ended = self._shown
            await self.close()
            if ended is not None and ended not in self._decided:
                await self._tell_who_decided(ended)
            while transcript.waiting:
                pause_id = next(iter(transcript.waiting))
                try:
                    if await self._show(pause_id, transcript):
                        return
                except (NotFound, Forbidden) as error:
                    self.post_message(self.Said(error_text(error)))
                except ToolcribError as error:
                    # The run waits for the decision, however busy or far away the server is.
                    if pause_id not in self._unread:
                        self._unread.add(pause_id)
                        self.post_message(self.Said(f"{error_text(error)} Retrying …"))
                    self.set_timer(_RETRY_SECONDS, lambda: self.post_message(self.Unread()))
                    return
                transcript.waiting.pop(pause_id, None)

    async def confirm(self, lines: Sequence[Line]) -> None:
        """Asks for confirmation of what the lines preview. Pending items return afterwards."""
        async with self._turn:
            await self.close()
            await self._put(ConfirmPanel(lines))

    async def review(self, shown: ReviewOut) -> None:
        """Shows a review. Pending items return afterwards."""
        async with self._turn:
            await self.close()
            await self._put(ReviewPanel(shown))

    async def close(self) -> None:
        self._shown = None
        had_keys = self.has_focus_within
        await self.remove_children()
        self.display = False
        if had_keys:
            self.app.query_one(PromptInput).focus()

    async def _show(self, pause_id: str, transcript: Transcript) -> bool:
        """Shows a paused call if it is still pending. Returns whether it did."""
        pause = await asyncio.to_thread(self._location.client.paused_call, self._location.id, UUID(pause_id))
        if pause.state is not PauseState.PENDING:
            return False
        if isinstance(pause, ApprovalOut):
            await self._put(ApprovalPanel(pause, more=len(transcript.waiting) - 1))
        else:
            await self._put(QuestionPanel(pause, await self._plans(pause, transcript.last_plan)))
        self._shown = pause_id
        return True

    async def _tell_who_decided(self, pause_id: str) -> None:
        """Tells the person why a panel has closed: somebody else was faster."""
        try:
            pause = await asyncio.to_thread(self._location.client.paused_call, self._location.id, UUID(pause_id))
        except ToolcribError:
            return
        if pause.decided_at is not None:
            who, when = one_line(pause.decided_by_name or "someone", 80), pause.decided_at.astimezone()
            self.post_message(self.Said(f"Already {pause.state} by {who} at {when:%H:%M:%S}."))

    def take_keys(self) -> bool:
        """Focuses the panel. Returns whether there is one."""
        for panel in self.children:
            if isinstance(panel, QuestionPanel):
                panel.focus_answer()
            else:
                panel.focus()
            return True
        return False

    async def _put(self, panel: Panel | QuestionPanel | ReviewPanel) -> None:
        self.display = True
        await self.mount(panel)
        # The next letter that a person types must not approve a call.
        if not self.app.query_one(PromptInput).text:
            self.take_keys()

    async def _plans(self, question: QuestionPauseOut, last: str | None) -> dict[str, ReviewedPlan]:
        plans: dict[str, ReviewedPlan] = {}
        for item in question.questions:
            try:
                plan = await asyncio.to_thread(plan_asked_about, self._location, item, last=last)
            except ToolcribError as error:
                self.post_message(self.Said(error_text(error)))
                continue
            if plan is not None:
                plans[item.name] = plan
        return plans

    @on(ApprovalPanel.Decided)
    async def _decide(self, event: ApprovalPanel.Decided) -> None:
        event.stop()
        self._decided.add(str(event.approval.id))
        try:
            await asyncio.to_thread(
                self._location.client.decide,
                self._location.id,
                event.approval,
                approved=event.approved,
                scope=event.scope,
                reason=event.reason,
                rule=event.rule,
            )
        except ToolcribError as error:
            self.post_message(self.Said(error_text(error)))
            if not isinstance(error, Conflict | NotFound):
                # It is still pending, so the panel stays.
                return
        await self._close_panel_of(event.approval.id)

    @on(ApprovalPanel.Lacking)
    def _load_rest(self, event: ApprovalPanel.Lacking) -> None:
        # Not awaited here: a call of thousands of files takes seconds, and the person may decide or stop meanwhile.
        self.run_worker(self._show_whole(event.panel, event.approval))

    async def _show_whole(self, panel: ApprovalPanel, approval: ApprovalOut) -> None:
        try:
            whole = await asyncio.to_thread(self._location.client.whole_approval, self._location.id, approval)
        except ToolcribError as error:
            self.post_message(self.Said(f"Not all lines were loaded. {error_text(error)}"))
            panel.show_rest()
            return
        if panel.is_attached:
            await panel.show_whole(whole)

    @on(ReviewPanel.Lacking)
    def _load_page(self, event: ReviewPanel.Lacking) -> None:
        self.run_worker(self._show_page(event))

    async def _show_page(self, event: ReviewPanel.Lacking) -> None:
        file, panel = event.file, event.panel
        load = partial(self._location.client.review, self._location.id, event.shown.session_id)
        try:
            if file is None:
                page = await asyncio.to_thread(load, offset=event.shown.next_offset or 0)
            else:
                page = await asyncio.to_thread(load, path=file.path, from_line=file.next_line or 0)
            if panel.is_attached:
                await (panel.add_files(page) if file is None else panel.add_lines(page))
        except ToolcribError as error:
            panel.show_flaw(error_text(error))

    @on(QuestionPanel.Answered)
    async def _answer(self, event: QuestionPanel.Answered) -> None:
        event.stop()
        answers, buttons = answers_to(event.question, event.given, _nobody)
        client, pause_id = self._location.client, event.question.id
        self._decided.add(str(pause_id))
        try:
            await asyncio.to_thread(client.answer, self._location.id, pause_id, answers, buttons=buttons)
        except BadArguments as error:
            await self.query_one(QuestionPanel).ask_again(invalid_answer(error.fields))
            return
        except ToolcribError as error:
            self.post_message(self.Said(error_text(error)))
        await self._close_panel_of(pause_id)

    async def _close_panel_of(self, pause_id: UUID) -> None:
        """Closes the panel of a pause that has ended.

        The events may be faster than the reply to the decision: then the panel is already that of the next pause, which
        nothing would show again.
        """
        async with self._turn:
            if self._shown == str(pause_id):
                await self.close()


def _nobody(prompt: str) -> str:
    raise AssertionError(f"{prompt} was not asked")
