"""The full-screen chat as the command uses it: goes on until the person leaves, or whoever served it is gone."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from toolcrib.cli.place import Place
from toolcrib.cli.terminal.app import ChatApp
from toolcrib.client import Agent, Session


class ScreenChat:
    """As ``PlainChat``, on the whole screen."""

    def __init__(self, place: Place, session: Session, agent: Agent) -> None:
        self.session = session
        self.unsent = ""
        self._place = place
        self._agent = agent

    def go_on(self, first: str = "", *, note: str = "") -> None:
        """Until the person leaves; NoAnswer if it has to be gone on with elsewhere."""
        app = ChatApp(self._place, self.session, self._agent, first=first, note=note)
        with _handlers_kept():
            app.run()
        self.session, self.unsent = app.session, app.unsent
        if app.lost is not None:
            raise app.lost
        if app.story.seen:
            typer.echo(f"Go on with: toolcrib chat --resume {str(app.session.id)[-8:]}", err=True)
        raise typer.Exit(app.return_code or 0)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """While it shows, the chat ends by its own means, so that the terminal is given back as it was."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
