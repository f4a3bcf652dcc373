"""``toolcrib workspace``: lists and manages your workspaces."""

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, TypeVar

import typer

from toolcrib.cli.command_options import (
    JsonOption,
    WorkspaceLocation,
    YesOption,
    group_in_workspace,
    in_workspace_of_group,
)
from toolcrib.cli.terminal_text import Row, one_line, print_json, print_list
from toolcrib.client import BudgetOut
from toolcrib.core.agents import TrustLevel
from toolcrib.core.budgets import Budget, BudgetPeriod, Budgets, dollars

app = typer.Typer(invoke_without_command=True)

NumberT = TypeVar("NumberT", int, Decimal)


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List your workspaces. A star marks the one of this directory.

    Example: toolcrib workspace rename website
    """
    found = location.client.workspaces()
    if as_json:
        print_json([{**one.model_dump(mode="json"), "here": one.id == location.id} for one in found])
        return
    for one in found:
        typer.echo(f"{'*' if one.id == location.id else ' '} {one.id}  {one_line(one.name, 200)}")


@app.command()
@in_workspace_of_group
def rename(location: WorkspaceLocation, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Rename this workspace. The directory keeps its name.

    Example: toolcrib workspace rename website
    """
    location.client.rename_workspace(location.id, name)
    typer.echo(f"Renamed to {one_line(name, 200)}.")


@app.command(name="max-trust")
@in_workspace_of_group
def max_trust(
    location: WorkspaceLocation,
    level: Annotated[str, typer.Argument(help="supervised, guided, review or autonomous; `none` removes the limit.")],
) -> None:
    """Limit the trust level of all sessions in this workspace; owners only.

    Example: toolcrib workspace max-trust guided
    """
    if level not in (*TrustLevel, "none"):
        raise typer.BadParameter(
            f"There is no trust level {one_line(level, 40)!r}. Trust levels: {', '.join(TrustLevel)}, none."
        )
    location.client.limit_trust(location.id, None if level == "none" else level)
    typer.echo("Trust limit removed." if level == "none" else f"Trust limit: {level}.")


@app.command()
@in_workspace_of_group
def budget(
    location: WorkspaceLocation,
    period: Annotated[
        BudgetPeriod | None, typer.Argument(help="What to limit: each session, or all of them per day or month (UTC).")
    ] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="US dollars; 0 for no limit.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Input and output tokens; 0 for no limit.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the budgets of this workspace and its agents, or set one of the workspace; owners only.

    Example: toolcrib workspace budget day --max-cost 5
    """
    given = {name: value for name, value in (("max_cost", max_cost), ("max_tokens", max_tokens)) if value is not None}
    if given and period is None:
        raise typer.BadParameter(f"Name what to limit: {', '.join(BudgetPeriod)}.")
    if given and period is not None:
        before = getattr(location.workspace.budgets or Budgets(), period) or Budget()
        limits = {name: value for name, value in {**before.model_dump(), **given}.items() if value}
        location.client.set_budgets(location.id, {period: limits or None})
    found = [one for one in location.client.budgets(location.id) if period in (None, one.period)]
    print_list(found, ("budget", "period", "cost", "tokens"), _budget_row, as_json=as_json, empty="No budgets.")


def _budget_row(one: BudgetOut) -> Row:
    cost = "" if one.max_cost is None else _used(one.cost, one.max_cost, dollars)
    tokens = "" if one.max_tokens is None else _used(one.tokens, one.max_tokens, "{:,}".format)
    return f"agent {one_line(one.agent_name, 60)}" if one.agent_name else "workspace", one.period, cost, tokens


def _used(used: NumberT | None, limit: NumberT, shown: Callable[[NumberT], str]) -> str:
    return f"at most {shown(limit)}" if used is None else f"{shown(used)} of {shown(limit)}"


@app.command()
@in_workspace_of_group
def delete(location: WorkspaceLocation, yes: YesOption = False) -> None:
    """Delete this workspace: its history, sessions and agents. The files stay.

    Example: toolcrib workspace delete
    """
    if not yes:
        typer.confirm(
            f"Delete workspace {one_line(location.workspace.name, 200)}? You cannot undo its changes afterwards.",
            abort=True,
        )
    location.client.delete_workspace(location.id)
    typer.echo("Deleted. The files are unchanged.")
