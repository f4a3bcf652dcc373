"""A session as blocks in order, built from its events. Independent of the screen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from toolcrib.cli import terminal_text
from toolcrib.cli.review import REVIEW_TOOL, decided_event
from toolcrib.client import StreamMessage
from toolcrib.sdk.run_events import TextAssembler

# While a call runs, only the end of a longer output is kept. Its result has all of it.
_MAX_OUTPUT = 20_000
# What a run that has waited does first.
_GOES_ON = frozenset({"chat:stream-start", "chat:text-delta", "chat:tool-start", "chat:tool-result"})


class CallBlockState(StrEnum):
    """The state of a call."""

    RUNNING = "running"
    WAITING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class UserBlock:
    """A message from a person."""

    text: str


@dataclass(slots=True, eq=False)
class AgentBlock:
    """A message from the agent. It grows while it streams."""

    text: str = ""
    # Whether it is among the blocks: the first delta may have only spaces.
    is_shown: bool = False


@dataclass(slots=True, eq=False)
class ToolCallBlock:
    """A tool call: its input, state, output and changes."""

    tool: str
    given: Any = None
    state: CallBlockState = CallBlockState.RUNNING
    output: str = ""
    changes: list[dict[str, Any]] = field(default_factory=list)
    began: float | None = None
    seconds: float | None = None
    # The person's own command: they want to see what it wrote.
    is_own: bool = False

    @property
    def is_open(self) -> bool:
        return self.state in (CallBlockState.RUNNING, CallBlockState.WAITING)


@dataclass(slots=True, eq=False)
class NoticeBlock:
    """A notice from the program."""

    text: str | Sequence[terminal_text.Line]
    is_bad: bool = False


Block = UserBlock | AgentBlock | ToolCallBlock | NoticeBlock


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that the agent has not received yet. A held one is sent only on request."""

    text: str
    held: bool = False


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """How full the model's context is; ``window`` is None if its size is unknown."""

    tokens: int = 0
    window: int | None = None
    # Of the session's runs with their child runs, in US dollars.
    cost: Decimal = Decimal(0)
    # The cost lacks turns of models whose price is not known.
    has_unpriced: bool = False


class Transcript:
    """The blocks of a session, and its paused calls."""

    def __init__(self, *, mode: str = "build") -> None:
        self.blocks: list[Block] = []
        self.mode = mode
        self.usage = ContextUsage()
        # The cost of each run, and how many of its turns have no known price.
        self._spent: dict[str, tuple[Decimal, int]] = {}
        # The run that has started and not ended.
        self.run_id: str | None = None
        # What it waits for, other than a person.
        self.run_wait: str | None = None
        # The messages behind it by the ids of their runs, oldest first.
        self.queued: dict[str, QueuedMessage] = {}
        # The ids of the pauses that are pending, oldest first. A dictionary keeps their order.
        self.waiting: dict[str, None] = {}
        self.last_plan: str | None = None
        # The run by which the person compacts the session, until the summary is there.
        self._compacting: str | None = None
        # Runs that ended, and whether they left a summary: their events may arrive before the reply to the person.
        self._has_summary: dict[str, bool] = {}
        # A run has just left changes for a review.
        self.has_review = False
        self.seen = 0
        # The person's own call that started last, and what it wrote before its start was known.
        self._own_call: ToolCallBlock | None = None
        self._own_output = ""
        self._words = TextAssembler()
        self._spoken: dict[str, AgentBlock] = {}
        self._calls: dict[str, ToolCallBlock] = {}

    def apply(self, message: StreamMessage, now: float | None = None) -> list[Block]:
        """Applies an event and returns the changed blocks. Live events have ``now``, to measure durations."""
        self.seen = max(self.seen, message.seq or 0)
        payload = message.payload
        if message.type in _GOES_ON:
            self.run_wait = None
        match message.type:
            case "chat:resumed":
                self.mode = str(payload.get("mode") or self.mode)
                return []
            case "chat:message" if payload.get("role") == "user":
                # A message of a conversation that began elsewhere has no run.
                if payload.get("runId") is not None:
                    self._started(str(payload["runId"]))
                return [self._add(UserBlock(str(payload.get("content") or "")))]
            case "chat:message" if payload.get("role") == "assistant":
                return [self._add(AgentBlock(str(payload.get("content") or "")))]
            case "chat:message" if payload.get("role") == "summary":
                return self._summary(payload)
            case "chat:text-delta":
                return self._text(payload)
            case "chat:stream-end":
                return self._end_of_text(payload)
            case "chat:review":
                return self._review(payload, is_live=now is not None)
            case "chat:tool-start" | "chat:tool-result" if payload.get("toolName") == REVIEW_TOOL:
                # The event of the review says what it did.
                return []
            case "chat:tool-start" | "chat:tool-delta" | "chat:tool-result":
                return self._call(message.type, payload, now)
            case "chat:tool-confirm" | "chat:question" | "chat:pause-ended":
                return self._person(message.type, payload)
            case "chat:run-state":
                return self._run(payload)
            case _:
                return []

    def compact(self, run_id: str) -> list[Block]:
        """Says if there is nothing to compact, now or when the run by which the person compacts the session ends."""
        if run_id not in self._has_summary:
            self._compacting = run_id
            return []
        return [] if self._has_summary[run_id] else [self._add(_nothing_to_compact())]

    def _summary(self, payload: Mapping[str, Any]) -> list[Block]:
        self._compacting = None
        self._has_summary[str(payload.get("runId"))] = True
        usage = payload.get("usage") or {}
        if (tokens := usage.get("contextTokens")) is not None:
            self.usage = replace(self.usage, tokens=int(tokens))
        self._count(payload.get("runId"), usage)
        return [self._add(NoticeBlock(terminal_text.compacted(payload)))]

    def _review(self, payload: Mapping[str, Any], *, is_live: bool) -> list[Block]:
        if payload.get("state") == "decided":
            return [self._add(NoticeBlock(decided_event(payload)))]
        self.has_review = is_live
        return []

    def remark(self, text: str | Sequence[terminal_text.Line], *, is_bad: bool = False) -> Block:
        """Adds a notice."""
        return self._add(NoticeBlock(text, is_bad))

    def add_own_output(self, text: str) -> Block | None:
        """Adds output of the person's own call. Returns its block, if its start is known already."""
        self._own_output = (self._own_output + text)[-_MAX_OUTPUT:]
        if self._own_call is None or not self._own_call.is_open:
            return None
        self._own_call.output = self._own_output
        return self._own_call

    def _add(self, block: Block) -> Block:
        self.blocks.append(block)
        return block

    def _text(self, payload: Mapping[str, Any]) -> list[Block]:
        again = self._words.is_new_attempt(payload)
        fresh = self._words.fresh(payload)
        block = self._spoken.setdefault(payload["messageId"], AgentBlock())
        return self._grown(block, fresh if again else block.text + fresh)

    def _end_of_text(self, payload: Mapping[str, Any]) -> list[Block]:
        self._words.rest(payload)
        usage = payload.get("usage") or {}
        tokens = int(usage.get("contextTokens") or 0)
        self.usage = replace(self.usage, tokens=tokens, window=usage.get("contextWindow"))
        self._count(payload.get("runId"), usage)
        content = str(payload.get("content") or "")
        block = self._spoken.pop(payload["messageId"], AgentBlock())
        return self._grown(block, content)

    def _grown(self, block: AgentBlock, text: str) -> list[Block]:
        """Sets the text of a message. Before there is anything to see, it is no block."""
        block.text = text
        if text.strip() and not block.is_shown:
            block.is_shown = True
            self._add(block)
        return [block] if block.is_shown else []

    def _call_of(self, payload: Mapping[str, Any]) -> ToolCallBlock:
        """Returns the block of a call. Its first event creates it; output can overtake the start."""
        call_id, tool = str(payload["toolId"]), str(payload.get("toolName") or "")
        if call_id not in self._calls:
            self._calls[call_id] = ToolCallBlock(tool, payload.get("input"))
            self._add(self._calls[call_id])
        elif tool:
            self._calls[call_id].tool = tool
        return self._calls[call_id]

    def _call(self, kind: str, payload: Mapping[str, Any], now: float | None) -> list[Block]:
        call = self._call_of(payload)
        match kind:
            case "chat:tool-start":
                call.given, call.began, call.state = payload.get("input"), now, CallBlockState.RUNNING
                self.last_plan = terminal_text.plan_written(payload) or self.last_plan
                call.is_own = payload.get("messageId") is None and call.tool == "bash"
                if call.is_own and now is not None:
                    self._own_call, call.output = call, self._own_output
            case "chat:tool-delta":
                call.output = (call.output[: payload["offset"]] + payload["chunk"])[-_MAX_OUTPUT:]
            case _:
                self._end_call(call, payload, now)
        return [call]

    def _end_call(self, call: ToolCallBlock, payload: Mapping[str, Any], now: float | None) -> None:
        failed = payload.get("status") == "error"
        if call is self._own_call:
            self._own_call, self._own_output = None, ""
        call.state = CallBlockState.FAILED if failed else CallBlockState.DONE
        call.output = str(payload.get("result") or "")
        took = payload.get("durationMs")
        if took is not None:
            call.seconds = took / 1_000
        elif now is not None and call.began is not None:
            call.seconds = now - call.began
        if call.tool == "exit_plan_mode" and not failed:
            self.mode = "build"

    def _person(self, kind: str, payload: Mapping[str, Any]) -> list[Block]:
        pause_id = str(payload["pauseId"])
        # Only this tool asks questions.
        call = self._call_of({"toolName": "ask_user", **payload} if kind == "chat:question" else payload)
        begins = kind != "chat:pause-ended"
        if begins:
            self.waiting.setdefault(pause_id)
        else:
            self.waiting.pop(pause_id, None)
        if call.is_open:
            call.state = CallBlockState.WAITING if begins else CallBlockState.RUNNING
        call.changes = list(payload.get("changes") or call.changes)
        return [call]

    @property
    def held(self) -> list[str]:
        """The runs whose messages a stop held."""
        return [run_id for run_id, message in self.queued.items() if message.held]

    def _started(self, run_id: str) -> None:
        self.queued.pop(run_id, None)
        self.run_id = run_id

    def _count(self, run_id: str | None, usage: Mapping[str, Any]) -> None:
        """Counts a turn at once. The next state of its run has the sum, with the child runs."""
        if usage.get("inputTokens") or usage.get("outputTokens"):
            cost, unpriced = self._spent.get(str(run_id), (Decimal(0), 0))
            turn = usage.get("cost")
            self._spend(str(run_id), cost + Decimal(turn or 0), unpriced + (turn is None))

    def _spend(self, run_id: str, cost: Decimal, unpriced: int) -> None:
        self._spent[run_id] = cost, unpriced
        spent = self._spent.values()
        self.usage = replace(
            self.usage, cost=sum((one for one, _ in spent), Decimal(0)), has_unpriced=any(more for _, more in spent)
        )

    def _run(self, payload: Mapping[str, Any]) -> list[Block]:
        run_id = str(payload["runId"])
        if "unpricedTurns" in payload:
            self._spend(run_id, Decimal(payload.get("cost") or 0), int(payload["unpricedTurns"]))
        if payload.get("state") == "queued":
            self.queued[run_id] = QueuedMessage(str(payload.get("prompt") or ""), bool(payload.get("held")))
            return []
        if payload.get("state") != "ended":
            self._started(run_id)
            self.run_wait = terminal_text.run_wait(payload)
            wait = terminal_text.provider_wait(payload)
            return [] if wait is None else [self._add(NoticeBlock(wait))]
        if self.queued.pop(run_id, None) is not None:
            return []
        self.run_id = self.run_wait = None
        self.waiting.clear()
        if (failure := terminal_text.failure(payload)) is not None:
            return [self._add(NoticeBlock(failure, is_bad=True))]
        if payload.get("endReason") == "done":
            self._has_summary.setdefault(run_id, False)
        if run_id == self._compacting and payload.get("endReason") == "done":
            self._compacting = None
            return [self._add(_nothing_to_compact())]
        stop = terminal_text.stop(payload)
        return [] if stop is None else [self._add(NoticeBlock(stop))]


def _nothing_to_compact() -> NoticeBlock:
    return NoticeBlock("The conversation is too short for a summary.")


_BAR = 8


def status_line(where: str, agent: str, model: str, *, state: str, width: int) -> str:
    """Formats as much as fits. The right side, with the state of the run, is never truncated."""
    right = f" {state} "
    room = max(0, width - cell_len(right))
    name = model.rpartition("/")[2]
    lefts = [f" {where} · {agent} · {model}", f" {where} · {agent} · {name}", f" {where} · {agent}"]
    left = next((one for one in lefts if cell_len(one) <= room), None)
    if left is None:
        # The end of a path identifies it best.
        left = f" …{lefts[-1][max(0, len(lefts[-1]) - room + 2) :]}" if room > _BAR else ""
    elif left == lefts[-1] and (rest := room - cell_len(left) - cell_len(" · …")) >= _BAR:
        left += f" · {set_cell_size(name, rest)}…"
    return set_cell_size(left, room) + right


def attached_line(names: Sequence[str]) -> Text:
    """Formats what the next message brings."""
    line = Text("Your next message brings (Backspace removes): ", style="dim", no_wrap=True, overflow="ellipsis")
    return line.append("  ".join(f"+ {terminal_text.one_line(name, 30)}" for name in reversed(names)), style="not dim")


_QUEUED_SHOWN = 4


def queued_lines(messages: Iterable[QueuedMessage], *, width: int) -> Text:
    """Formats the messages that the agent has not received, and what a person can do with held ones."""
    listed = list(messages)
    lines = [Text(f"> {terminal_text.one_line(one.text, max(20, width - 14))}  ") for one in listed[:_QUEUED_SHOWN]]
    for line, one in zip(lines, listed, strict=False):
        line.append("not sent" if one.held else "queued", style="yellow" if one.held else "dim")
    if (more := len(listed) - _QUEUED_SHOWN) > 0:
        lines.append(Text(f"… {more:,} more", style="dim"))
    if any(one.held for one in listed):
        lines.append(Text("Enter sends what was not sent   Esc takes it back", style="dim"))
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def gauge(usage: ContextUsage) -> str:
    """Formats the tokens, as a share of the window if its size is known, and the cost."""
    spent = f" · ${usage.cost:.2f}" if usage.cost else ""
    if usage.has_unpriced:
        spent += " + unknown price" if spent else " · unknown price"
    if not usage.window:
        return f"{_short(usage.tokens)} tokens{spent}"
    part = min(1.0, usage.tokens / usage.window)
    full = round(part * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {part:.0%} of {_short(usage.window)}{spent}"


def _short(number: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            return f"{number / size:.0f}{unit}"
    return str(number)
