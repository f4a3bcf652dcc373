"""``toolcrib chat``: a conversation, full-screen or line by line."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    ServerOption,
    WorkspaceLocation,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.run import TAKEN_OVER, AgentOption, TrustOption, warm_provider
from toolcrib.cli.sessions import find_session
from toolcrib.client import AgentData, ServerUnreachable, SessionData
from toolcrib.sdk.default_agent import resolve_agent

if TYPE_CHECKING:
    from toolcrib.cli.line_chat import LineChat
    from toolcrib.cli.terminal.chat_app import ScreenChat


def chat(
    agent: AgentOption = None,
    trust: TrustOption = None,
    resume: Annotated[
        str | None, typer.Option("--resume", "-r", help="Continue a session: its id, the end of its id, or `last`.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Start in plan mode: read-only, the agent proposes a plan.")
    ] = False,
    lines: Annotated[bool, typer.Option("--plain", help="Line by line, for pipes and screen readers.")] = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Chat with an agent about a directory. It asks before it changes something; you can undo it.

    Example: toolcrib chat --resume last
    """
    unsent, note = "", ""
    while True:
        with open_workspace(directory, server=server, workspace=workspace) as location:
            if location.notes is not None and not location.served_elsewhere:
                # Loads while the person types, so that the first answer comes sooner.
                warm_provider()
            session, chosen_agent = _open_session(
                location, resume, agent=agent, mode="plan" if plan else "build", trust=trust
            )
            talk = _talk(location, session, chosen_agent, lines=lines)
            try:
                talk.go_on(unsent, note=note)
                return
            except ServerUnreachable:
                if not location.served_elsewhere:
                    raise
                # The process that served the directory has ended. This one takes over.
                resume, unsent, note = str(talk.session.id), talk.unsent, TAKEN_OVER


def _open_session(
    location: WorkspaceLocation, resume: str | None, *, agent: str | None, mode: str, trust: str | None
) -> tuple[SessionData, AgentData]:
    if resume is not None:
        session = find_session(location, resume)
        return session, resolve_agent(location, str(session.agent_id))
    chosen_agent = resolve_agent(location, agent)
    return location.client.create_session(location.id, agent_id=chosen_agent.id, mode=mode, trust=trust), chosen_agent


def _talk(
    location: WorkspaceLocation, session: SessionData, agent: AgentData, *, lines: bool
) -> "LineChat | ScreenChat":
    # Imports only the chat in use: the line chat needs none of the widgets.
    if lines or not is_screen():
        from toolcrib.cli.line_chat import LineChat

        return LineChat(location, session, agent)
    from toolcrib.cli.terminal.chat_app import ScreenChat

    return ScreenChat(location, session, agent)


def is_screen() -> bool:
    """Whether the terminal supports a full-screen application."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
