"""``toolcrib web``: opens the web UI of a directory in the browser of this machine."""

import select
import sys
import time
import webbrowser
from html import escape
from pathlib import Path
from secrets import token_hex
from typing import Annotated

import typer

from toolcrib.cli.command_options import HERE, DirectoryOption, WorkspaceLocation, WorkspaceSelection, aside
from toolcrib.core.errors import Misconfigured
from toolcrib.sdk.default_agent import resolve_agent

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}">
<title>Toolcrib</title>
<p><a href="{link}">Continue to Toolcrib</a></p>
</html>
"""


def web(
    directory: DirectoryOption = HERE,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Open the web UI: chat, approvals, files and history.

    Prints a link that logs you in. It works once and expires after two minutes.

    Example: toolcrib web --no-open
    """
    with WorkspaceSelection(directory).open() as location:
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
                _remove_login_pages(location.notes)
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
    assert location.login_link is not None
    assert location.notes is not None
    link = location.login_link()
    typer.echo(f"Open this link within two minutes. It logs you in once:\n\n  {link}\n")
    if opens:
        webbrowser.open(_write_login_page(location.notes, link).as_uri())


def _write_login_page(folder: Path, link: str) -> Path:
    """Writes a private page that redirects to the link. Removes older ones, whose links are used or expired.

    The link must not be an argument of the browser: all users of the machine can see the arguments of a program.
    """
    # Imported here, as in the other commands, so that all commands start quickly.
    from toolcrib.local.state_directory import write_private

    _remove_login_pages(folder)
    page = folder / f"login-{token_hex(8)}.html"
    write_private(page, _PAGE.format(link=escape(link)))
    return page


def _remove_login_pages(folder: Path) -> None:
    for page in folder.glob("login-*.html"):
        page.unlink(missing_ok=True)
