"""``toolcrib run``: runs one task with an agent."""

from typing import Annotated

import typer

from toolcrib.cli.command_options import AgentOption, WorkspaceSelection, with_options
from toolcrib.cli.decision_prompts import DecisionPrompt, NoTerminal, UnattendedPolicy, terminal_reader
from toolcrib.cli.message_context import prepare_message, task_from
from toolcrib.cli.review import review_summary
from toolcrib.cli.run_output import JsonPrinter, OutputFormat
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.sessions import ContinueOption, ResumeOption, open_session
from toolcrib.client import RunOut, ServerUnreachable, StreamMessage
from toolcrib.core.agents import TrustLevel
from toolcrib.core.runs import RunState
from toolcrib.sdk.session_client import SessionClient, end_reason, is_end

# The exit code for each reason why a run ended.
STATUS = {"done": 0, "failed": 1, "turn-limit": 3, "budget": 3, "deadline": 3, "violation": 4}
STATUS |= {"cancelled": 130, "held": 130}
NEEDS_A_PERSON = 5
# The run is done, but without a call that a rule denied, or that nobody approved.
DENIED = 6
TAKEN_OVER = "The server for this directory has stopped. Continuing in this terminal."

TrustOption = Annotated[TrustLevel | None, typer.Option(help="Trust level; by default the agent's.")]
PlanOption = Annotated[bool, typer.Option("--plan", help="Start in plan mode, which is read-only.")]


@with_options(WorkspaceSelection)
def run(
    selection: WorkspaceSelection,
    prompt: Annotated[str | None, typer.Argument(help="The task. By default standard input.")] = None,
    resume: ResumeOption = None,
    latest: ContinueOption = False,
    agent: AgentOption = None,
    trust: TrustOption = None,
    approve: Annotated[UnattendedPolicy | None, typer.Option(help="Without a terminal: reject, or wait.")] = None,
    plan: PlanOption = False,
    package: Annotated[str | None, typer.Option(help="Run the workflow of this package.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=1000, help="Lower starts first.")] = None,
    output: Annotated[
        OutputFormat | None, typer.Option("--output", "-o", help="What to print: text, or JSON for programs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output stream-json.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")] = False,
) -> None:
    """Run one task with an agent. Piped input is attached to the task.

    Asks about what cannot be undone, and with `--trust guided` about every change. Without a terminal, such calls are
    rejected. `toolcrib undo` takes back the run.
    Exit codes: 0 done, 1 failed, 2 not started, 3 limit reached, 4 sandbox violation, 5 needs a person,
    6 done, but a call was denied or rejected, 130 cancelled.

    Example: git diff | toolcrib run "Review this"
    """
    shape = output or (OutputFormat.STREAM_JSON if as_json else OutputFormat.TEXT)
    words, attached = task_from(prompt)
    printer = (
        SessionPrinter(quiet=quiet)
        if shape is OutputFormat.TEXT
        else JsonPrinter(events=shape is OutputFormat.STREAM_JSON)
    )
    read = None if approve is not None or shape is not OutputFormat.TEXT else terminal_reader()
    conversation, begun = None, None
    while True:
        with selection.open() as location:
            if conversation is None:
                session, _ = open_session(
                    location,
                    resume=resume,
                    latest=latest,
                    agent=agent,
                    mode="plan" if plan else "build",
                    trust=trust,
                    package=package,
                )
                conversation = SessionClient(location, session)
            conversation = conversation.moved(location)
            decisions = DecisionPrompt(location, printer, read=read, absent=approve or UnattendedPolicy.NEVER)
            try:
                if begun is None:
                    message = prepare_message(location, words, attached=attached, names_files=prompt not in (None, "-"))
                    begun = conversation.send(message.text, priority=priority, attachments=message.attachments)
                status = follow_run(conversation, begun, printer, decisions)
                if isinstance(printer, JsonPrinter):
                    printer.print_result(conversation, begun, status, needs_person=status == NEEDS_A_PERSON)
                raise typer.Exit(status)
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
    review_with: str = "toolcrib review",
) -> int:
    """Prints events and handles pauses until the run ends. Returns the exit code.

    If the run left changes for a review, prints how much, and the command that opens it.
    """
    status, denied, stopped = 1, False, False
    # Until then, what is asked and denied is another run's, behind which this one is queued.
    has_started = run.state is not RunState.QUEUED
    while True:
        try:
            for message in conversation.follow(run):
                printer.show(message)
                has_started = has_started or _is_start(message, run)
                denied = denied or (has_started and _is_denial(message))
                if is_end(message, run):
                    status = STATUS.get(end_reason(message), 1)
                elif has_started:
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


def _is_start(message: StreamMessage, run: RunOut) -> bool:
    payload = message.payload
    return (
        message.type == "chat:run-state"
        and payload.get("runId") == str(run.id)
        and payload.get("state") != RunState.QUEUED
    )


def _is_denial(message: StreamMessage) -> bool:
    """Whether the message is the result of a call that a rule denied, or that nobody approved."""
    return message.type == "chat:tool-result" and bool((message.payload.get("metadata") or {}).get("denied"))
