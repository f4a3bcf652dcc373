"""``toolcrib web``: the web UI of a directory, in the browser of whoever sits at this machine."""

import sys
import threading
import webbrowser
from typing import Annotated

import typer

from toolcrib.cli.place import HERE, DirectoryOption, Place, aside, open_place
from toolcrib.domain.errors import Misconfigured
from toolcrib.library.staff import chosen_agent


def web(
    directory: DirectoryOption = HERE,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Show a directory in the browser: chat, what waits for you, files, and what was done.

    A link logs you in. It is good once and for two minutes; whoever sees it later can do nothing with it.

    Example: toolcrib web --no-open
    """
    with open_place(directory) as place:
        _furnish(place)
        while True:
            _show_link(place, opens=opens and sys.stdin.isatty())
            if place.served_elsewhere:
                typer.echo("Another toolcrib serves this directory: the page is there for as long as that one runs.")
                return
            typer.echo("Enter shows a new link. Ctrl-C ends the page; what runs or waits goes on at the next start.")
            try:
                if sys.stdin.readline() == "":
                    threading.Event().wait()
            except KeyboardInterrupt:
                return
            opens = False


def _furnish(place: Place) -> None:
    """Someone to talk to, as in the chat. Without a model the page is of use all the same."""
    try:
        chosen_agent(place, None)
    except Misconfigured as error:
        aside(error.message)


def _show_link(place: Place, *, opens: bool) -> None:
    assert place.login_link is not None
    link = place.login_link()
    typer.echo(f"Open this within two minutes. It logs you in, once:\n\n  {link}\n")
    if opens:
        webbrowser.open(link)
