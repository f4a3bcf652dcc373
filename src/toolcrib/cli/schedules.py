"""``toolcrib schedules``: messages to agents that are sent by the clock."""

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from toolcrib.cli.command_options import (
    AgentOption,
    JsonOption,
    WorkspaceLocation,
    group_in_workspace,
    in_workspace_of_group,
)
from toolcrib.cli.terminal_text import Row, find_by_id, one_line, plain, print_facts, print_json, print_list, short_id
from toolcrib.client import ScheduleOut
from toolcrib.sdk.default_agent import resolve_agent

app = typer.Typer(invoke_without_command=True)

NameArgument = Annotated[str, typer.Argument(help="The schedule's name, or the start or end of its id.")]


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List schedules: messages sent by a cron expression.

    Example: toolcrib schedules add report "0 9 * * mon-fri" "Summarize the changes."
    """
    _print_all(location, as_json=as_json)


@app.command("list")
@in_workspace_of_group
def list_(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List schedules, with their next time in their own time zone.

    Example: toolcrib schedules list --json
    """
    _print_all(location, as_json=as_json)


@app.command()
@in_workspace_of_group
def add(
    location: WorkspaceLocation,
    name: Annotated[str, typer.Argument(help="A name, also the title of its sessions.")],
    cron: Annotated[str, typer.Argument(help="Minute, hour, day of month, month, day of week.")],
    message: Annotated[str, typer.Argument(help="The message to the agent.")],
    time_zone: Annotated[str, typer.Option("--time-zone", "-z", help="Such as Europe/Berlin.")] = "UTC",
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a schedule. Each time starts a new session, as you.

    Example: toolcrib schedules add report "0 9 * * mon-fri" "Summarize the changes." -z Europe/Berlin
    """
    made = location.client.create_schedule(
        location.id,
        name=name,
        cron=cron,
        time_zone=time_zone,
        agent_id=resolve_agent(location, agent).id,
        message=message,
    )
    _print_changed("Created", made, as_json=as_json)


@app.command()
@in_workspace_of_group
def show(location: WorkspaceLocation, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show a schedule: its message, its times, and how the last one went.

    Example: toolcrib schedules show report
    """
    found = _find(location, name)
    if as_json:
        print_json(found)
        return
    agents = {one.id: one.name for one in location.client.agents(location.id)}
    facts = {
        "name": one_line(found.name, 200),
        "cron": f"{one_line(found.cron, 200)} ({one_line(found.time_zone, 100)})",
        "agent": one_line(agents.get(found.agent_id, f"{found.agent_id}, which was removed"), 200),
        "next": _next(found),
        "last": "never" if found.last_at is None else _local(found.last_at, found.time_zone),
        "session": str(found.last_session_id or ""),
        "error": one_line(found.last_error or ""),
    }
    print_facts(facts)
    typer.echo(f"\n{plain(found.message)}")


@app.command()
@in_workspace_of_group
def pause(location: WorkspaceLocation, name: NameArgument, as_json: JsonOption = False) -> None:
    """Pause a schedule.

    Example: toolcrib schedules pause report
    """
    _enable(location, name, enabled=False, as_json=as_json)


@app.command()
@in_workspace_of_group
def resume(location: WorkspaceLocation, name: NameArgument, as_json: JsonOption = False) -> None:
    """Resume a paused schedule. What it missed is not sent.

    Example: toolcrib schedules resume report
    """
    _enable(location, name, enabled=True, as_json=as_json)


@app.command()
@in_workspace_of_group
def run(location: WorkspaceLocation, name: NameArgument, as_json: JsonOption = False) -> None:
    """Send a schedule's message now. Its next time stays as it is.

    Example: toolcrib schedules run report
    """
    started = location.client.run_schedule(location.id, _find(location, name).id)
    if as_json:
        print_json(started)
        return
    typer.echo(f"Started. Show it with: toolcrib sessions {short_id(started.session_id)}")


@app.command()
@in_workspace_of_group
def remove(location: WorkspaceLocation, name: NameArgument) -> None:
    """Remove a schedule. Its sessions stay.

    Example: toolcrib schedules remove report
    """
    found = _find(location, name)
    location.client.delete_schedule(location.id, found.id)
    typer.echo(f"Removed: {one_line(found.name, 60)}.")


def _enable(location: WorkspaceLocation, name: str, *, enabled: bool, as_json: bool) -> None:
    changed = location.client.change_schedule(location.id, _find(location, name).id, enabled=enabled)
    _print_changed("Resumed" if enabled else "Paused", changed, as_json=as_json)


def _print_all(location: WorkspaceLocation, *, as_json: bool) -> None:
    def row(one: ScheduleOut) -> Row:
        return one_line(one.name, 40), one_line(one.cron, 30), _next(one), one_line(one.last_error or "", 60)

    empty = "No schedules yet. `toolcrib schedules add` creates one."
    found = location.client.schedules(location.id)
    print_list(found, ("name", "cron", "next", "last error"), row, as_json=as_json, empty=empty)


def _print_changed(verb: str, schedule: ScheduleOut, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule)
        return
    then = "" if schedule.next_at is None else f" Next: {_next(schedule)}."
    typer.echo(f"{verb}: {one_line(schedule.name, 60)}.{then}")


def _find(location: WorkspaceLocation, text: str) -> ScheduleOut:
    found = location.client.schedules(location.id)
    named = next((one for one in found if one.name == text), None)
    missing = f"There is no schedule {one_line(text, 60)!r}. `toolcrib schedules` lists them."
    return named or find_by_id(found, text, lambda one: one.id, missing=missing)


def _next(schedule: ScheduleOut) -> str:
    return "paused" if schedule.next_at is None else _local(schedule.next_at, schedule.time_zone)


def _local(moment: datetime, time_zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(time_zone)):%Y-%m-%d %H:%M} {one_line(time_zone, 100)}"
