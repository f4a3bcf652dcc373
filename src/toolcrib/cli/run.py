"""``toolcrib run``: runs one task with an agent."""

import sys
from typing import Annotated

import typer

from toolcrib.cli.command_options import AgentOption, WorkspaceSelection, with_options
from toolcrib.cli.decision_prompts import DecisionPrompt, NoTerminal, UnattendedPolicy, terminal_reader
from toolcrib.cli.review import review_summary
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.client import RunOut, ServerUnreachable, StreamMessage
from toolcrib.core.agents import TrustLevel
from toolcrib.core.errors import Misconfigured
from toolcrib.sdk.default_agent import resolve_agent
from toolcrib.sdk.session_client import SessionClient, end_reason, is_end

# The exit code for each reason why a run ended.
STATUS = {"done": 0, "failed": 1, "turn-limit": 3, "budget": 3, "deadline": 3, "violation": 4}
STATUS |= {"cancelled": 130, "held": 130}
NEEDS_A_PERSON = 5
# The run is done, but without a call that a rule denied, or that nobody approved.
DENIED = 6
TAKEN_OVER = "The server for this directory has stopped. Continuing in this terminal."

TrustOption = Annotated[TrustLevel | None, typer.Option(help="Trust level; by default the agent's.")]
PlanOption = Annotated[bool, typer.Option("--plan", help="Start in plan mode: read-only, the agent proposes a plan.")]


@with_options(WorkspaceSelection)
def run(
    selection: WorkspaceSelection,
    prompt: Annotated[str, typer.Argument(help="The task. `-` reads it from standard input.")],
    agent: AgentOption = None,
    trust: TrustOption = None,
    approve: Annotated[
        UnattendedPolicy | None,
        typer.Option(help="Without a terminal: reject approvals, or wait for `toolcrib approve`."),
    ] = None,
    plan: PlanOption = False,
    package: Annotated[str | None, typer.Option(help="Run the workflow of this package.")] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, max=1000, help="Lower starts first, by default 100; below it owners only.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")] = False,
) -> None:
    """Run one task with an agent.

    Asks about what cannot be undone, and with `--trust guided` about every change. Without a terminal, such calls are
    rejected. `toolcrib undo` takes back the run.
    Exit codes: 0 done, 1 failed, 2 not started, 3 limit reached, 4 sandbox violation, 5 needs a person,
    6 done, but a call was denied or rejected, 130 cancelled.

    Example: toolcrib run "Add a test for the parser"
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise Misconfigured('No task given. Usage: toolcrib run "…"')
    printer = SessionPrinter(quiet=quiet or as_json)
    read = None if approve is not None or as_json or prompt == "-" else terminal_reader()
    conversation, begun = None, None
    while True:
        with selection.open() as location:
            if conversation is None:
                chosen_agent = resolve_agent(location, agent)
                mode = "plan" if plan else "build"
                session = location.client.create_session(
                    location.id,
                    agent_id=chosen_agent.id,
                    mode=mode,
                    trust=trust,
                    package=package,
                    directory=location.directory,
                )
                conversation = SessionClient(location, session)
            conversation = conversation.moved(location)
            decisions = DecisionPrompt(location, printer, read=read, absent=approve or UnattendedPolicy.NEVER)
            try:
                begun = begun or conversation.send(text, priority=priority)
                raise typer.Exit(follow_run(conversation, begun, printer, decisions, as_json=as_json))
            except ServerUnreachable:
                if not location.served_elsewhere:
                    raise
                printer.aside(TAKEN_OVER)


def follow_run(
    conversation: SessionClient,
    run: RunOut,
    printer: SessionPrinter,
    decisions: DecisionPrompt,
    *,
    as_json: bool = False,
    review_with: str = "toolcrib review",
) -> int:
    """Prints events and handles pauses until the run ends. Returns the exit code.

    If the run left changes for a review, prints how much, and the command that opens it.
    """
    status, denied, stopped = 1, False, False
    while True:
        try:
            for message in conversation.follow(run):
                if as_json:
                    typer.echo(message.model_dump_json(exclude_none=True))
                else:
                    printer.show(message)
                denied = denied or _is_denial(message)
                if is_end(message, run):
                    status = STATUS.get(end_reason(message), 1)
                else:
                    decisions.decide(message)
            if printer.has_review:
                printer.has_review = False
                shown = conversation.location.client.review(conversation.location.id, conversation.id)
                printer.aside(f"{review_summary(shown)} — {review_with} to look, keep or revert")
            return DENIED if denied and status == 0 else status
        except NoTerminal:
            printer.aside(
                "The agent asks a question, but there is no terminal. Run it in a terminal, or add "
                "--approve wait and answer with `toolcrib answer`."
            )
            conversation.stop(run)
            return NEEDS_A_PERSON
        except KeyboardInterrupt:
            if stopped:
                raise
            stopped = True
            printer.aside("Cancelling …")
            conversation.stop(run)


def _is_denial(message: StreamMessage) -> bool:
    """Whether the message is the result of a call that a rule denied, or that nobody approved."""
    return message.type == "chat:tool-result" and bool((message.payload.get("metadata") or {}).get("denied"))
