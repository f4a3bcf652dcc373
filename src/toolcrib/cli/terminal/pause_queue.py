"""Shows pending approvals and questions one at a time, and sends the decisions."""

import asyncio
from uuid import UUID

from rich.text import Text
from textual import on
from textual.containers import Container
from textual.message import Message

from toolcrib.cli.answer import answers_to
from toolcrib.cli.decision_prompts import ReviewedPlan, plan_asked_about
from toolcrib.cli.terminal.inputs import PromptInput
from toolcrib.cli.terminal.pause_panels import ApprovalPanel, ConfirmPanel, Panel, QuestionPanel
from toolcrib.cli.terminal.transcript import Transcript
from toolcrib.cli.terminal_text import plain
from toolcrib.client import QuestionData
from toolcrib.core.errors import BadArguments, Conflict, NotFound, ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation


class PauseQueue(Container):
    """Empty, or one panel. It does not take the focus while a person is typing."""

    class Said(Message):
        """A notice for the person."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, location: WorkspaceLocation) -> None:
        super().__init__(id="waiting")
        self.display = False
        self._location = location
        self._shown: str | None = None
        self._turn = asyncio.Lock()

    async def handle(self, transcript: Transcript) -> None:
        """Shows the oldest pending item, and closes a panel that was decided elsewhere."""
        async with self._turn:
            if self.query(ConfirmPanel) or (self._shown is not None and self._shown in transcript.waiting):
                return
            await self.close()
            while transcript.waiting:
                waiting_id, kind = next(iter(transcript.waiting.items()))
                if await self._show(UUID(waiting_id), kind, transcript):
                    return
                transcript.waiting.pop(waiting_id, None)

    async def confirm(self, lines: list[Text]) -> None:
        """Asks for confirmation of what the lines preview. Pending items return afterwards."""
        async with self._turn:
            await self.close()
            await self._put(ConfirmPanel(lines))

    async def close(self) -> None:
        self._shown = None
        had_keys = self.has_focus_within
        await self.remove_children()
        self.display = False
        if had_keys:
            self.app.query_one(PromptInput).focus()

    async def _show(self, waiting_id: UUID, kind: str, transcript: Transcript) -> bool:
        """Shows an item if it is still open. Returns whether it did."""
        client = self._location.client
        try:
            if kind == "approval":
                approval = await asyncio.to_thread(client.approval, self._location.id, waiting_id)
                if approval.state != "open":
                    return False
                more = len(transcript.waiting) - 1
                await self._put(ApprovalPanel(approval, more=more))
            else:
                question = await asyncio.to_thread(client.question, self._location.id, waiting_id)
                if question.state != "open":
                    return False
                await self._put(QuestionPanel(question, await self._plans(question, transcript.last_plan)))
        except ToolcribError as error:
            self.post_message(self.Said(error.message))
            return False
        self._shown = str(waiting_id)
        return True

    def take_keys(self) -> bool:
        """Focuses the panel. Returns whether there is one."""
        for panel in self.children:
            if isinstance(panel, QuestionPanel):
                panel.focus_answer()
            else:
                panel.focus()
            return True
        return False

    async def _put(self, panel: Panel | QuestionPanel) -> None:
        self.display = True
        await self.mount(panel)
        # The next letter that a person types must not approve a call.
        if not self.app.query_one(PromptInput).text:
            self.take_keys()

    async def _plans(self, question: QuestionData, last: str | None) -> dict[str, ReviewedPlan]:
        plans: dict[str, ReviewedPlan] = {}
        for item in question.questions:
            try:
                plan = await asyncio.to_thread(plan_asked_about, self._location, item, last=last)
            except ToolcribError as error:
                self.post_message(self.Said(error.message))
                continue
            if plan is not None:
                plans[item["name"]] = plan
        return plans

    @on(ApprovalPanel.Decided)
    async def _decide(self, event: ApprovalPanel.Decided) -> None:
        event.stop()
        rule = event.approval.offered if event.approved and event.scope != "once" else None
        try:
            await asyncio.to_thread(
                self._location.client.decide,
                self._location.id,
                event.approval,
                approved=event.approved,
                scope=event.scope,
                reason=event.reason,
                rule=rule,
            )
        except (Conflict, NotFound) as error:
            self.post_message(self.Said(error.message))
        except ToolcribError as error:
            # It is still pending, so the panel stays.
            self.post_message(self.Said(error.message))
            return
        await self.close()

    @on(QuestionPanel.Answered)
    async def _answer(self, event: QuestionPanel.Answered) -> None:
        event.stop()
        answers, pressed = answers_to(event.question, event.given, _nobody)
        client, question_id = self._location.client, event.question.id
        try:
            await asyncio.to_thread(client.answer, self._location.id, question_id, answers, by_button=pressed)
        except BadArguments as error:
            flaw = "Invalid answer: " + "; ".join(map(plain, error.fields.values()))
            await self.query_one(QuestionPanel).ask_again(flaw)
            return
        except ToolcribError as error:
            self.post_message(self.Said(error.message))
        await self.close()


def _nobody(prompt: str) -> str:
    raise AssertionError(f"{prompt} was not asked")
