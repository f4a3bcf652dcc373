"""Prompts at the terminal for approvals and for answers to questions."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import typer
from rich.console import Console
from rich.text import Text

from toolcrib.cli.answer import answers_to
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.terminal_text import plain, rule_text, show_approval, show_question
from toolcrib.client import ApprovalData, StreamMessage
from toolcrib.core.errors import BadArguments, Conflict, Misconfigured, NotFound, ToolcribError
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


def is_review(item: Mapping[str, Any]) -> bool:
    """Whether the item asks to accept a plan."""
    return any(button.get("value") == "Accept" for button in item.get("buttons") or ())


def plan_asked_about(location: WorkspaceLocation, item: Mapping[str, Any], *, last: str | None) -> ReviewedPlan | None:
    """Returns the plan that a review names, or else the last one; None without either.

    Raises the error if the plan cannot be read.
    """
    if not is_review(item):
        return None
    named = _NAMED.search(str(item["question"]))
    path = named[0] if named else last
    if path is None:
        return None
    found = location.client.call(location.id, "read", {"path": f"/{path.lstrip('/')}"})
    return ReviewedPlan(path, str(found.get("content", "")))


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
        """Handles an approval or a question; ignores other events."""
        match message.type:
            case "chat:tool-confirm" if self._is_new(message.payload["approvalId"]):
                self._approval(UUID(message.payload["approvalId"]))
            case "chat:question" if self._is_new(message.payload["questionId"]):
                self._question(UUID(message.payload["questionId"]))
            case _:
                pass

    def _is_new(self, waiting_id: str) -> bool:
        """Whether the id is new. After a reconnect the server sends open approvals and questions again."""
        if waiting_id in self._asked:
            return False
        self._asked.add(waiting_id)
        return True

    def _approval(self, approval_id: UUID) -> None:
        approval = self._location.client.approval(self._location.id, approval_id)
        if approval.state != "open":
            return
        if self._read is None and self._absent is UnattendedPolicy.WAIT:
            self._printer.aside(f"{approval.tool} needs approval: toolcrib approve {str(approval_id)[-8:]}")
            return
        if self._read is None:
            self._send_decision(approval, approved=False, reason="there is no terminal to ask at")
            return
        self._printer.aside("")
        show_approval(Console(), approval, self._location.workspace.name)
        self._ask(approval, self._read)

    def _ask(self, approval: ApprovalData, read: Read) -> None:
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
                    typer.echo(f"Always approved in this session: {rule_text(approval.offered)}")
                    self._send_decision(approval, approved=True, scope="session")
                case _:
                    typer.echo("Type y, n or a." if always else "Type y or n.")
                    continue
            return

    def _send_decision(
        self, approval: ApprovalData, *, approved: bool, scope: str = "once", reason: str | None = None
    ) -> None:
        rule = approval.offered if approved and scope != "once" else None
        try:
            self._location.client.decide(
                self._location.id, approval, approved=approved, scope=scope, reason=reason, rule=rule
            )
        except (Conflict, NotFound) as error:
            self._printer.aside(error.message)

    def _question(self, question_id: UUID) -> None:
        question = self._location.client.question(self._location.id, question_id)
        if question.state != "open":
            return
        if self._read is None and self._absent is UnattendedPolicy.WAIT:
            self._printer.aside(f"The agent asks a question: toolcrib answer {str(question_id)[-8:]}")
            return
        if self._read is None:
            raise NoTerminal
        self._printer.aside("")
        for item in question.questions:
            self._show_plan(item)
        show_question(Console(), question, self._location.workspace.name)
        while True:
            answers, pressed = answers_to(question, {}, self._read)
            try:
                self._location.client.answer(self._location.id, question_id, answers, by_button=pressed)
            except BadArguments as error:
                typer.echo("Invalid answer: " + "; ".join(map(plain, error.fields.values())))
                continue
            except (Conflict, NotFound) as error:
                self._printer.aside(error.message)
            return

    def _show_plan(self, item: Mapping[str, Any]) -> None:
        try:
            plan = plan_asked_about(self._location, item, last=self._printer.last_plan)
        except ToolcribError as error:
            self._printer.aside(error.message)
            return
        if plan is None:
            return
        lines = plan.text.splitlines()
        console = Console()
        console.print(Text(plain(plan.path), style="bold"))
        for line in lines[:_MAX_PLAN_LINES]:
            console.print(Text("  " + plain(line)), soft_wrap=True)
        if len(lines) > _MAX_PLAN_LINES:
            console.print(Text(f"  … {len(lines) - _MAX_PLAN_LINES:,} more lines", style="dim"))
        console.print()


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
