"""``toolcrib sessions``: lists sessions and shows their messages."""

from contextlib import suppress
from typing import Annotated
from uuid import UUID

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, in_workspace
from toolcrib.cli.terminal_text import age, find_by_id, one_line, plain, print_json, print_list, short_id
from toolcrib.client import AgentOut, SessionOut
from toolcrib.core.errors import BadArguments, NotFound
from toolcrib.sdk.default_agent import resolve_agent

_LOOKED_AT = 200
SESSION_HELP = "its id, the start or end of its id, or `last`."

ResumeOption = Annotated[str | None, typer.Option("--resume", "-r", help="Continue this session: id or `last`.")]
ContinueOption = Annotated[bool, typer.Option("--continue", "-c", help="Continue your latest session here.")]


@in_workspace
def sessions(
    location: WorkspaceLocation,
    session: Annotated[str | None, typer.Argument(help=f"Show this session: {SESSION_HELP}")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_LOOKED_AT, help="Number of sessions.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List sessions, newest first, or show the messages of one.

    Example: toolcrib sessions last
    """
    if session is not None:
        _show(location, find_session(location, session), as_json=as_json)
        return
    found = location.client.sessions(location.id, limit=limit)
    print_list(
        found,
        ("id", "age", "mode", "title"),
        lambda one: (short_id(one.id), age(one.created_at), one.mode, one_line(one.title or "", 60)),
        as_json=as_json,
        empty="No sessions yet.",
    )
    if found and not as_json:
        typer.echo("\nContinue with: toolcrib chat --resume ID")


def open_session(
    location: WorkspaceLocation,
    *,
    resume: str | None,
    latest: bool,
    agent: str | None,
    mode: str,
    trust: str | None,
    package: str | None = None,
) -> tuple[SessionOut, AgentOut]:
    """Returns a session and its agent: the one to ``resume``, the ``latest`` one, or a new one.

    Raises:
        BadArguments: An option is given that a session cannot change any more.
        NotFound: There is no such session.
    """
    if resume is None and not latest:
        chosen_agent = resolve_agent(location, agent)
        session = location.client.create_session(
            location.id,
            agent_id=chosen_agent.id,
            mode=mode,
            trust=trust,
            package=package,
            directory=location.directory,
        )
        return session, chosen_agent
    given = {"--agent": agent is not None, "--plan": mode == "plan", "--package": package is not None}
    given["--continue"] = latest and resume is not None
    if wrong := {name: "Not with a session that goes on" for name, is_given in given.items() if is_given}:
        raise BadArguments(wrong)
    session = latest_session(location) if resume is None else find_session(location, resume)
    if session.agent_id is None:
        raise NotFound(f"Session {short_id(session.id)} has no agent to talk to. Start one with `toolcrib chat`.")
    if trust is not None and session.trust != trust:
        session = location.client.change_session(location.id, session.id, trust=trust)
    return session, resolve_agent(location, str(session.agent_id))


def latest_session(location: WorkspaceLocation) -> SessionOut:
    """Returns the session to which the person sent a message last. Raises NotFound if there is none."""
    person = location.client.me().id
    own = (one.session_id for one in location.client.runs(location.id, limit=_LOOKED_AT) if one.user_id == person)
    for session_id in dict.fromkeys(own):
        session = location.client.session(location.id, session_id)
        # The sessions of child runs belong to their agents.
        if session.parent_session_id is None:
            return session
    raise NotFound("There is no session to continue here. `toolcrib chat` starts one.")


def find_session(location: WorkspaceLocation, text: str) -> SessionOut:
    """Returns the session with this id, or whose id starts or ends with ``text``; ``last`` is the newest."""
    with suppress(ValueError):
        return location.client.session(location.id, UUID(text))
    missing = f"There is no session {one_line(text, 60)!r}. `toolcrib sessions` lists them."
    found = location.client.sessions(location.id, limit=_LOOKED_AT)
    if text != "last":
        return find_by_id(found, text, lambda one: one.id, missing=missing)
    if not found:
        raise NotFound(missing)
    return found[0]


def _show(location: WorkspaceLocation, session: SessionOut, *, as_json: bool) -> None:
    messages = location.client.messages(location.id, session.id)
    if as_json:
        print_json(messages)
        return
    for message in messages:
        if message.content.strip():
            typer.echo(f"{'> ' if message.role == 'user' else ''}{plain(message.content)}\n")
        for call in (message.metadata and message.metadata.tool_calls) or ():
            typer.echo(f"  {one_line(call.function.name, 60)} (call {call.call_id})\n")
