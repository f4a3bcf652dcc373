"""``toolcrib runs``: lists, shows, cancels and retries runs."""

from contextlib import suppress
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, in_workspace
from toolcrib.cli.sessions import SESSION_HELP, find_session
from toolcrib.cli.terminal_text import (
    Row,
    age,
    cost_text,
    find_by_id,
    one_line,
    print_facts,
    print_json,
    print_list,
    short_id,
)
from toolcrib.client import CostOut, RunOut
from toolcrib.core.errors import NotFound
from toolcrib.core.runs import CostGroup, RunState, RunWait

app = typer.Typer(no_args_is_help=True, help="List, show, cancel and retry runs.")

_LOOKED_AT = 200
RunArgument = Annotated[str, typer.Argument(help="Its id, the start or end of its id, or `last`.")]
_WAITS = {
    RunWait.RELEASE: "somebody to release it: the session was stopped",
    RunWait.QUEUE: "room among the workspace's runs",
    RunWait.WORKER: "a free place in a server process",
    RunWait.CREDENTIAL: "room among the requests that the credential allows: `toolcrib models limit` sets it",
    RunWait.CHILD: "its child runs: `toolcrib runs list` shows them",
    RunWait.PERSON: "a person: `toolcrib approve` or `toolcrib answer`",
    RunWait.NOBODY: "a server process: the one that had it is gone, and no other has taken it over",
}
# Shown instead of the state: `ready` and `waiting` do not say why a run does not go on.
_WAITS_SHOWN = {RunWait.PERSON, RunWait.CHILD, RunWait.PROVIDER, RunWait.CREDENTIAL, RunWait.NOBODY}


@app.command("list")
@in_workspace
def listed(
    location: WorkspaceLocation,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    session: Annotated[str | None, typer.Option(help=f"Only runs of this session: {SESSION_HELP}")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_LOOKED_AT, help="Number of runs.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the workspace's runs, newest first.

    Example: toolcrib runs list --state waiting
    """
    session_id = None if session is None else find_session(location, session).id

    def row(one: RunOut) -> Row:
        return short_id(one.id), age(one.created_at), _state(one), short_id(one.session_id), _brief(one)

    found = location.client.runs(location.id, session_id, state=state, limit=limit)
    headings = ("id", "age", "state", "session", "message")
    print_list(found, headings, row, as_json=as_json, empty="No runs found.")


@app.command()
@in_workspace
def show(location: WorkspaceLocation, run: RunArgument, as_json: JsonOption = False) -> None:
    """Show one run: its state, what it waits for, its progress and its error.

    Example: toolcrib runs show last
    """
    found = find_run(location, run)
    if as_json:
        print_json(found)
        return
    facts = {
        "run": str(found.id),
        "session": str(found.session_id),
        "message": _brief(found),
        "state": _state(found),
        "waits for": _wait(location, found),
        "error": None if found.error is None else f"{found.error.code}: {one_line(found.error.message)}",
        "priority": str(found.priority),
        "attempts": str(found.attempts),
        "takeovers": str(found.takeovers),
        "turns": str(found.turns),
        "tokens": f"{found.input_tokens:,} in, {found.output_tokens:,} out, {found.context_tokens:,} in the context",
        "cost": _cost(found),
        "active": f"{found.active_ms / 1000:.1f} s",
        "created": _time(found.created_at),
        "started": _time(found.started_at),
        "ended": _time(found.ended_at),
    }
    print_facts(facts)


@app.command()
@in_workspace
def cancel(location: WorkspaceLocation, run: RunArgument, as_json: JsonOption = False) -> None:
    """Cancel a run within a second. What it has changed stays; `toolcrib undo` takes it back.

    Example: toolcrib runs cancel 3f9a2b1c
    """
    found = location.client.cancel(location.id, find_run(location, run).id)
    if as_json:
        print_json(found)
        return
    typer.echo(f"{'Cancelled' if found.state is RunState.ENDED else 'Cancelling'}: run {short_id(found.id)}.")


@app.command()
@in_workspace
def retry(location: WorkspaceLocation, run: RunArgument, as_json: JsonOption = False) -> None:
    """Send the message of a run again that failed, was cancelled or used up a budget.

    What the first run changed stays. The new run goes on while the server, or a chat in the directory, runs.

    Example: toolcrib runs retry last
    """
    made = location.client.retry(location.id, find_run(location, run).id)
    if as_json:
        print_json(made)
        return
    typer.echo(f"Retrying as run {short_id(made.id)}. Follow it with: toolcrib chat --resume {made.session_id}")


@app.command()
@in_workspace
def costs(
    location: WorkspaceLocation,
    by: Annotated[CostGroup, typer.Option(help="What to add up by.")] = CostGroup.DAY,
    days: Annotated[int, typer.Option(min=1, max=366, help="The last so many days, today included.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Add up tokens and costs of the workspace, by day, agent, model or session.

    Example: toolcrib runs costs --by agent --days 7
    """

    def row(one: CostOut) -> Row:
        return one.key, str(one.runs), f"{one.input_tokens:,}", f"{one.output_tokens:,}", _cost(one)

    found = location.client.costs(location.id, by=by, days=days)
    print_list(found, (by, "runs", "input", "output", "cost"), row, as_json=as_json, empty="No model was used.")


def find_run(location: WorkspaceLocation, text: str) -> RunOut:
    """Returns the run with this id, or whose id starts or ends with ``text``; ``last`` is the newest."""
    with suppress(ValueError):
        return location.client.run(location.id, UUID(text))
    missing = f"There is no run {one_line(text, 60)!r} among the last {_LOOKED_AT}. `toolcrib runs list` lists them."
    found = location.client.runs(location.id, limit=1 if text == "last" else _LOOKED_AT)
    if text != "last":
        return find_by_id(found, text, lambda one: one.id, missing=missing)
    if not found:
        raise NotFound("There are no runs yet.")
    return found[0]


def _state(run: RunOut) -> str:
    if run.held:
        return "held"
    if run.waits_for in _WAITS_SHOWN:
        return f"waits for {run.waits_for}"
    return run.state if run.end_reason is None else run.end_reason


def _brief(run: RunOut) -> str:
    return one_line(run.prompt_preview, 60)


def _wait(location: WorkspaceLocation, run: RunOut) -> str | None:
    if run.waits_for is None:
        return None
    if run.waits_for is RunWait.QUEUE:
        begun = {RunState.READY, RunState.RUNNING, RunState.WAITING}
        for other in location.client.runs(location.id, run.session_id):
            if other.state in begun:
                return f"the session's run {short_id(other.id)}, which is {other.state}"
    if run.waits_for is RunWait.PROVIDER:
        return f"the provider, which limits requests, until {_time(run.not_before)}"
    return _WAITS[run.waits_for]


def _cost(run: RunOut | CostOut) -> str:
    return cost_text(run.cost, run.unpriced_turns)


def _time(when: datetime | None) -> str | None:
    return None if when is None else f"{when.astimezone():%Y-%m-%d %H:%M:%S}"
