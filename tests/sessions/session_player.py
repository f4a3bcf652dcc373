"""Plays a session in local mode: a scripted model, a person who approves and works in between, then undo and redo."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.acceptance.local_machine import Model
from tests.fakes import strictness
from tests.fakes.model_server import MODELS, Answer, Received, plain
from tests.integration.runs.conftest import MODEL, says
from tests.sessions.project_builder import Person
from tests.sessions.project_state import State, differences, git_damage, project_state
from tests.sessions.scenario import PROCESS, Call, Hand, Session, Turn
from toolcrib import ApprovalOut, Approve, QuestionPauseOut, RunResult, ToolCallFinished, Toolcrib
from toolcrib.sdk.toolcrib import TrustLevel

_TOOLS = (
    "ls", "read", "read_multiple_files", "grep", "glob", "write", "edit", "mv", "rm", "mkdir", "bash_start",
    "bash_output", "bash_stop", "ask_user",
)  # fmt: skip
# Asks about the effect of a command, not about the command.
AGENT = (
    f"provider: openai-compatible\nmodel: {MODEL}\ntrust: guided\nmax_trust: review\ntoolsets: [workspace]\n"
    "max_turns: 100\ntool_permissions:\n  bash: {allowed: true, approve: effect}\n"
    + "".join(f"  {tool}: {{allowed: true}}\n" for tool in _TOOLS)
)


@dataclass
class Played:
    """What happened in a session."""

    approvals: list[str] = field(default_factory=list)
    questions: int = 0
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    undo_seconds: float = 0.0
    undo_differences: list[str] = field(default_factory=list)
    redo_differences: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


@dataclass
class _Script:
    """Responds for the model. The person acts when the model is asked next, so that every earlier call has ended."""

    person: Person
    session: Session
    position: int = 0
    # The state after each turn; before the first one at -1.
    after: dict[int, State] = field(default_factory=dict)
    # What the person changed, by name; None if they removed it.
    by_hand: dict[str, str | None] = field(default_factory=dict)
    failure: BaseException | None = None

    def respond(self, request: Received) -> Answer:
        if request.path.endswith("/models"):
            return plain(200, {"object": "list", "data": MODELS})
        try:
            refusal = strictness.openai_refusal(request.body)
            assert refusal is None, refusal
            return self._next(request)
        except (AssertionError, OSError, IndexError) as error:
            # It would be lost in the thread of the model.
            self.failure = self.failure or error
            return plain(400, {"error": {"message": f"The script failed: {error}", "type": "invalid_request_error"}})

    def _next(self, request: Received) -> Answer:
        if self.session.undone is not None:
            turn = sum(isinstance(step, Turn) for step in self.session.steps[: self.position]) - 1
            self.after[turn] = project_state(self.person)
        while self.position < len(self.session.steps):
            step = self.session.steps[self.position]
            self.position += 1
            if isinstance(step, Turn):
                return says(step.text, *(_with_process(one, request) for one in step.calls))
            self._act(step)
        return says("Done.")

    def _act(self, hand: Hand) -> None:
        before = project_state(self.person)
        self.person.run(hand.script)
        now = project_state(self.person)
        changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
        self.by_hand |= {name: now.get(name) for name in changed}


def play(session: Session, person: Person, model: Model, *, trust: TrustLevel) -> Played:
    """Play a session, undo it and redo it."""
    played, script = Played(), _Script(person, session)
    model.responder = script.respond

    def approve(approval: ApprovalOut) -> Approve:
        # An approval that is always stale would go on forever.
        assert len(played.approvals) < 4 * session.calls, played.approvals
        rule = approval.suggested_rule
        played.approvals.append(f"{approval.tool}: {rule.commands or rule.paths} ({approval.rule})")
        # As a person would: "all edits in this session", and commands like this one.
        rules = [approval.suggested_rule, *approval.other_rules]
        widest = next((one for one in rules if one.paths is None and one.commands is None), None)
        return Approve() if approval.is_for_once else Approve("session", widest)

    def answer(asked: QuestionPauseOut) -> Mapping[str, Any]:
        played.questions += 1
        return {one.name: one.buttons[0].value for one in asked.questions}

    start = project_state(person)
    with Toolcrib(person.project, agent="worker", trust=trust, approve=approve, answer=answer) as crib:
        crib.client.create_agent(crib.workspace_id, name="worker", definition=AGENT)
        began = time.monotonic()
        events = list(crib.stream(session.name))
        played.seconds = time.monotonic() - began
        if script.failure is not None:
            raise script.failure
        result, ended = events[-1], [event for event in events if isinstance(event, ToolCallFinished)]
        assert isinstance(result, RunResult)
        assert result.ok, result
        played.failed = [f"{event.tool}: {event.result[-1000:]}" for event in ended if not event.ok]
        end = project_state(person)
        played.damage += git_damage(person)

        wanted = _wanted(session, script, start=start, end=end)
        target: dict[str, Any] = {"session_id": str(result.session_id)}
        if session.undone is not None:
            target = {"calls": [str(ended[session.undone].call_id)]}
        began = time.monotonic()
        undone = crib.call("undo", **target)
        played.undo_seconds = time.monotonic() - began
        played.conflicts = [f"{one['path']}: {one['reason']}" for one in undone["conflicts"]]
        played.undo_differences = differences(wanted, project_state(person))
        played.damage += git_damage(person)

        crib.redo()
        played.redo_differences = differences(end, project_state(person))
        played.damage += git_damage(person)
    return played


def _wanted(session: Session, script: _Script, *, start: State, end: State) -> State:
    """Return the state that undo must lead to: as before the session or the call, with what the person did since."""
    if session.undone is not None:
        before, after = script.after[session.undone - 1], script.after[session.undone]
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        ours = {name: before.get(name) for name in changed if after.get(name) == end.get(name)}
        return _changed(end, ours)
    stays = {name: end.get(name) for name in {*start, *end} if name.startswith(session.stays)}
    return _changed(start, script.by_hand | stays)


def _changed(state: State, changes: Mapping[str, str | None]) -> State:
    merged = {**state, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _with_process(one: Call, request: Received) -> Call:
    """Fill in the id of the last background process, which the model reads in a result."""
    known = re.findall(r"\[process ([0-9a-f-]{36});", json.dumps(request.body["messages"]))
    name, arguments = one
    return name, {key: known[-1] if value == PROCESS else value for key, value in arguments.items()}
