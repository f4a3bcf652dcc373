"""``toolcrib approve``: lists and decides pending approvals."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.cli.approval_inbox import (
    ApprovalInbox,
    AsOption,
    DatabaseOption,
    ServerOption,
    WorkspaceOption,
    chosen,
    found_by,
    open_inbox,
)
from toolcrib.cli.terminal_text import age, one_line, rule_text, show_approval, what_would_change
from toolcrib.client import ApprovalData, WorkspaceData
from toolcrib.core.approvals import GrantScope
from toolcrib.core.errors import BadArguments, Misconfigured


def approve(
    approval_id: Annotated[str | None, typer.Argument(help="The id, or its first or last characters.")] = None,
    reject: Annotated[bool, typer.Option("--reject", help="Reject it.")] = False,
    reason: Annotated[str | None, typer.Option(help="Reason for a rejection (the agent sees it).")] = None,
    scope: Annotated[GrantScope, typer.Option(help="How long an approval applies.")] = GrantScope.ONCE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    workspace: WorkspaceOption = None,
    server: ServerOption = None,
    database: DatabaseOption = False,
    email: AsOption = None,
) -> None:
    """List pending approvals, or approve or reject one.

    Uses this directory; with --server, TOOLCRIB_TOKEN (an access token or API key); with --database, --as.

    Example: toolcrib approve 3f9a2b1c --scope session
    """
    with open_inbox(server=server, database=database, email=email, notify=_say) as inbox:
        waiting = [
            (member_workspace, one)
            for member_workspace in chosen(inbox, workspace)
            for one in inbox.approvals(member_workspace)
        ]
        if approval_id is None:
            _list(waiting, as_json=as_json)
            return
        member_workspace, short = found_by(waiting, approval_id, "approve")
        approval = inbox.approval(member_workspace, short.id)
        _decide(
            inbox, member_workspace, approval, approved=not reject, scope=scope, reason=reason, yes=yes, as_json=as_json
        )


def _list(waiting: list[tuple[WorkspaceData, ApprovalData]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([_record(workspace, one) for workspace, one in waiting]))
        return
    if not waiting:
        typer.echo("No pending approvals.")
        return
    table = Table("id", "age", "agent", "tool", "changes", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for _, one in waiting:
        table.add_row(
            Text(str(one.id)[-8:], no_wrap=True),
            Text(age(one.created_at), no_wrap=True),
            Text(one_line(one.agent_name or "", 40)),
            Text(one_line(one.tool, 40)),
            what_would_change(one),
        )
    console = Console()
    console.print(table)
    console.print(Text("\nDecide with: toolcrib approve ID [--reject]", style="dim"))


def _decide(
    inbox: ApprovalInbox,
    workspace: WorkspaceData,
    approval: ApprovalData,
    *,
    approved: bool,
    scope: GrantScope,
    reason: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    if not as_json:
        console = Console()
        show_approval(console, approval, workspace.name)
        if approved and scope is not GrantScope.ONCE:
            how_long = "in this session" if scope is GrantScope.SESSION else "until revoked"
            console.print(Text(f"This also approves, {how_long}, without asking: {rule_text(approval.offered)}\n"))
    if not yes:
        _ask("Approve?" if approved else "Reject?")
    try:
        decided = inbox.decide(workspace, approval, approved=approved, scope=scope, reason=reason)
    except BadArguments as error:
        raise BadArguments(error.fields, "; ".join(error.fields.values())) from None
    if as_json:
        typer.echo(json.dumps(_record(workspace, decided)))
        return
    typer.echo("Approved. The server runs it now." if approved else "Rejected.")


def _ask(question: str) -> None:
    """Asks for confirmation, and exits without it. A program without a terminal must pass ``--yes``."""
    if not sys.stdin.isatty() and not sys.stdin.readable():
        raise Misconfigured("There is no terminal to confirm at. Add --yes.")
    try:
        if not typer.confirm(question):
            typer.echo("Cancelled. The approval is still pending.")
            raise typer.Exit(1)
    except typer.Abort:
        raise Misconfigured(
            "Input ended without a confirmation. The approval is still pending. Add --yes to skip the confirmation."
        ) from None


def _record(workspace: WorkspaceData, approval: ApprovalData) -> dict[str, object]:
    return {"workspace": workspace.name, "workspace_id": str(workspace.id), **approval.model_dump(mode="json")}


def _say(text: str) -> None:
    typer.echo(text, err=True)
