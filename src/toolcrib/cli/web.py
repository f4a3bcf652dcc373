"""``toolcrib web``: opens the web UI of a directory in the browser of this machine."""

import select
import sys
import time
import webbrowser
from typing import Annotated

import typer

from toolcrib.cli.command_options import HERE, DirectoryOption, WorkspaceLocation, aside, open_workspace
from toolcrib.core.errors import Misconfigured
from toolcrib.sdk.default_agent import resolve_agent


def web(
    directory: DirectoryOption = HERE,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Open the web UI: chat, approvals, files and history.

    Prints a link that logs you in. It works once and expires after two minutes.

    Example: toolcrib web --no-open
    """
    # Imported here, as in the other commands, so that all commands start quickly.
    from toolcrib.local.login_page import remove_login_pages

    with open_workspace(directory) as location:
        _ensure_agent(location)
        while True:
            _show_link(location, opens=opens and sys.stdin.isatty())
            if location.served_elsewhere:
                typer.echo("Another toolcrib process serves this directory. The page works while that process runs.")
                return
            try:
                typer.echo("Press Enter for a new link, Ctrl-C to stop. Unfinished runs continue at the next start.")
                _wait_for_enter()
            except KeyboardInterrupt:
                return
            finally:
                assert location.notes is not None
                remove_login_pages(location.notes)
            opens = False


def _wait_for_enter() -> None:
    """Waits for a line, or for ever if the input has ended.

    Polls every second: if Ctrl-C comes just before a system call, Python raises KeyboardInterrupt only when that call
    returns.
    """
    while not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    if sys.stdin.readline() == "":
        while True:
            time.sleep(1.0)


def _ensure_agent(location: WorkspaceLocation) -> None:
    """Ensures that there is an agent, as the chat does. Without a model, the rest of the page still works."""
    try:
        resolve_agent(location, None)
    except Misconfigured as error:
        aside(error.message)


def _show_link(location: WorkspaceLocation, *, opens: bool) -> None:
    from toolcrib.local.login_page import write_login_page

    assert location.login_link is not None
    assert location.notes is not None
    link = location.login_link()
    typer.echo(f"Open this link within two minutes. It logs you in once:\n\n  {link}\n")
    if opens:
        # Never the link itself: all users of the machine can see the arguments of a program.
        webbrowser.open(write_login_page(location.notes, link).as_uri())
