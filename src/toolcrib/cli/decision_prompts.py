"""Prompts at the terminal for approvals and answers."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import typer
from pydantic import ValidationError
from rich.text import Text

from toolcrib.cli.answer import answers_to
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.terminal_text import (
    invalid_answer,
    plain,
    print_lines,
    rule_text,
    short_id,
    shown_approval,
    shown_question,
)
from toolcrib.client import ApprovalOut, GrantRuleOut, QuestionOut, QuestionPauseOut, StreamMessage
from toolcrib.core.errors import BadArguments, Conflict, Misconfigured, NotFound, ToolcribError
from toolcrib.core.paused_calls import PauseState
from toolcrib.sdk.approval_callbacks import PAUSES
from toolcrib.sdk.workspace_location import WorkspaceLocation

_NAMED = re.compile(r"[\w./@-]+\.plan\b")
_FRONTMATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReviewedPlan:
    """The plan that a question is about. A person reads it before they accept it."""

    path: str
    text: str

    @property
    def body(self) -> str:
        """The text below the frontmatter, if it has one."""
        return _FRONTMATTER.sub("", self.text, count=1)


def plan_asked_about(location: WorkspaceLocation, item: QuestionOut, *, last: str | None) -> ReviewedPlan | None:
    """Returns the plan that a review names, or else the last one; None without either.

    Raises the error if the plan cannot be read.
    """
    is_review = any(button.value == "Accept" for button in item.buttons)
    named = _NAMED.search(item.question)
    path = named[0] if named else last
    if not is_review or path is None:
        return None
    found = location.client.call(location.id, "read", {"path": f"/{path.lstrip('/')}"})
    return ReviewedPlan(path, str(found.get("content", "")))


def rule_as_text(rule: GrantRuleOut) -> str:
    """Returns what a person edits of a rule: its one command or path, or else the rule as JSON."""
    entries = rule.commands or rule.paths or []
    is_plain = len(entries) == 1 and "\n" not in entries[0] and not entries[0].startswith("{")
    return entries[0] if is_plain else json.dumps(rule.model_dump(exclude_none=True), ensure_ascii=False)


def edited_rule(rule: GrantRuleOut, texts: Sequence[str]) -> GrantRuleOut:
    """Returns the rule with other commands or paths, or the one rule that is given as JSON."""
    if len(texts) == 1 and texts[0].startswith("{"):
        try:
            return GrantRuleOut.model_validate_json(texts[0])
        except ValidationError as error:
            wrong = {".".join(map(str, ("rule", *one["loc"]))): one["msg"] for one in error.errors()}
            raise BadArguments(wrong) from None
    field = "commands" if rule.commands is not None else "paths"
    return rule.model_copy(update={field: list(texts)})


_MAX_PLAN_LINES = 200

Read = Callable[[str], str]


class UnattendedPolicy(StrEnum):
    """What happens to a call that needs a person when there is no terminal."""

    NEVER = "never"
    WAIT = "wait"


class NoTerminal(Exception):
    """A person must answer, but there is no terminal."""


class DecisionPrompt:
    """Decides pending approvals and questions: prompts the person or, without a terminal, follows the policy."""

    def __init__(
        self,
        location: WorkspaceLocation,
        printer: SessionPrinter,
        *,
        read: Read | None,
        absent: UnattendedPolicy = UnattendedPolicy.NEVER,
    ) -> None:
        self._location = location
        self._printer = printer
        self._read = read
        self._absent = absent
        self._asked: set[str] = set()

    def decide(self, message: StreamMessage) -> None:
        """Handles an event that asks for approval or answers, once; ignores other events."""
        pause_id = message.payload.get("pauseId")
        # After a reconnect the server sends paused calls again.
        if message.type not in PAUSES or pause_id in self._asked:
            return
        self._asked.add(str(pause_id))
        pause = self._location.client.paused_call(self._location.id, UUID(pause_id))
        if pause.state is not PauseState.PENDING:
            return
        if self._read is not None:
            self._printer.aside("")
            if isinstance(pause, ApprovalOut):
                self._approval(pause, self._read)
            else:
                self._question(pause, self._read)
        elif self._absent is UnattendedPolicy.WAIT:
            is_approval = isinstance(pause, ApprovalOut)
            what = f"{pause.tool} needs approval" if is_approval else "The agent asks a question"
            self._printer.aside(f"{what}: toolcrib {'approve' if is_approval else 'answer'} {short_id(pause.id)}")
        elif isinstance(pause, ApprovalOut):
            self._send_decision(pause, approved=False, reason="there is no terminal to ask at")
        else:
            raise NoTerminal

    def _approval(self, approval: ApprovalOut, read: Read) -> None:
        print_lines(shown_approval(self._whole(approval), self._location.workspace.name))
        if not approval.is_for_once:
            rule = rule_text(approval.suggested_rule)
            print_lines([Text(f"a approves {rule}. To save another rule, type it after the a.")], wrap=True)
        while True:
            always = "" if approval.is_for_once else ", [a]lways in this session"
            text = read(f"Approve? [y]es, [n]o (a reason may follow){always}: ").strip()
            key, _, reason = text.partition(" ")
            match key.lower():
                case "y" | "yes":
                    self._send_decision(approval, approved=True)
                case "n" | "no":
                    self._send_decision(approval, approved=False, reason=reason.strip() or None)
                case "a" | "always" if always:
                    try:
                        self._approve_always(approval, reason.strip())
                    except BadArguments as error:
                        typer.echo("; ".join(f"{name}: {flaw}" for name, flaw in error.fields.items()))
                        continue
                case _:
                    typer.echo("Type y, n or a." if always else "Type y or n.")
                    continue
            return

    def _whole(self, approval: ApprovalOut) -> ApprovalOut:
        try:
            return self._location.client.whole_approval(self._location.id, approval)
        except Conflict:
            # Decided elsewhere meanwhile, which the decision will say.
            return approval

    def _approve_always(self, approval: ApprovalOut, text: str) -> None:
        rule = edited_rule(approval.suggested_rule, [text]) if text else approval.suggested_rule
        self._send_decision(approval, approved=True, scope="session", rule=rule)
        typer.echo(f"Always approved in this session: {rule_text(rule)}")

    def _send_decision(
        self,
        approval: ApprovalOut,
        *,
        approved: bool,
        scope: str = "once",
        reason: str | None = None,
        rule: GrantRuleOut | None = None,
    ) -> None:
        client = self._location.client
        try:
            client.decide(self._location.id, approval, approved=approved, scope=scope, reason=reason, rule=rule)
        except (Conflict, NotFound) as error:
            self._printer.aside(error.message)

    def _question(self, question: QuestionPauseOut, read: Read) -> None:
        for item in question.questions:
            self._show_plan(item)
        print_lines(shown_question(question, self._location.workspace.name), wrap=True)
        while True:
            answers, buttons = answers_to(question, {}, read)
            try:
                self._location.client.answer(self._location.id, question.id, answers, buttons=buttons)
            except BadArguments as error:
                typer.echo(invalid_answer(error.fields))
                continue
            except (Conflict, NotFound) as error:
                self._printer.aside(error.message)
            return

    def _show_plan(self, item: QuestionOut) -> None:
        try:
            plan = plan_asked_about(self._location, item, last=self._printer.last_plan)
        except ToolcribError as error:
            self._printer.aside(error.message)
            return
        if plan is None:
            return
        lines = plan.text.splitlines()
        shown = [Text(plain(plan.path), style="bold"), *(Text("  " + plain(line)) for line in lines[:_MAX_PLAN_LINES])]
        if len(lines) > _MAX_PLAN_LINES:
            shown.append(Text(f"  … {len(lines) - _MAX_PLAN_LINES:,} more lines", style="dim"))
        print_lines([*shown, Text()])


def at_terminal(prompt: str) -> str:
    """Prompts at the terminal. Raises Misconfigured when the input has ended."""
    try:
        return input(prompt)
    except EOFError:
        raise Misconfigured(
            "Input ended, so the call is still pending. Decide it later with `toolcrib approve` or `toolcrib answer`."
        ) from None


def terminal_reader() -> Read | None:
    """Returns the prompt function; None if standard input is not a terminal."""
    return at_terminal if sys.stdin.isatty() else None
