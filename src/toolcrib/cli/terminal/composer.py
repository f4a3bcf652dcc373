"""The message box with its completions, and what the next message brings."""

import asyncio
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from toolcrib.cli.message_context import AttachedText, PreparedMessage, image_at, prepare_message
from toolcrib.cli.terminal.completions import InputCompletion, WorkspacePaths, command_completions
from toolcrib.cli.terminal.inputs import PromptHistory, PromptInput, Suggestions
from toolcrib.cli.terminal.transcript import attached_line
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation

Attached = tuple[str | Path | AttachedText, ...]
"""Images, PDFs and the output of commands."""


class Composer(Vertical):
    """Collects images, PDFs and the output of commands, until a message is sent. ``prompt`` is the message box."""

    class PathsLoaded(Message):
        """The paths of the workspace are there, for completion."""

    def __init__(self, location: WorkspaceLocation) -> None:
        super().__init__(id="composer")
        self._location = location
        self._paths = WorkspacePaths(location, notify=lambda: self.post_message(self.PathsLoaded()))
        self._attachments: list[str | Path] = []
        self._ran: list[AttachedText] = []
        self._attached = Static(id="attached")
        self._attached.display = False
        self.prompt = PromptInput(PromptHistory(location.notes), self._completions)

    def compose(self) -> ComposeResult:
        yield Suggestions()
        yield self._attached
        yield self.prompt

    def attach(self, brought: str | Path | AttachedText) -> None:
        """Attaches an image, a PDF or the output of a command to the next message."""
        if isinstance(brought, AttachedText):
            self._ran.append(brought)
        else:
            self._attachments.append(brought)
        self._show_attached()

    @property
    def attached(self) -> Attached:
        """What is attached to the next message."""
        return (*self._attachments, *self._ran)

    def prepare(self, words: str, attached: Attached) -> PreparedMessage:
        """Returns the message with what it brings. Reads files: call it in a thread."""
        return prepare_message(
            self._location,
            words,
            attachments=[one for one in attached if not isinstance(one, AttachedText)],
            attached=[one for one in attached if isinstance(one, AttachedText)],
        )

    def detach(self, sent: Attached) -> None:
        """Removes what was sent. What was attached since stays."""
        for one in sent:
            for attached in (self._attachments, self._ran):
                if one in attached:
                    attached.remove(one)  # type: ignore[arg-type]  # it is in the list
        self._show_attached()

    def on_prompt_input_typed(self, event: PromptInput.Typed) -> None:
        self.query_one(Suggestions).show(event.completions, event.chosen)

    def on_composer_paths_loaded(self) -> None:
        self.prompt.suggest()

    async def on_prompt_input_path_pasted(self, event: PromptInput.PathPasted) -> None:
        try:
            found = await asyncio.to_thread(image_at, self._location, event.text)
        except ToolcribError:
            found = None
        if found is None:
            self.prompt.insert(event.text)
        else:
            self.attach(found)

    def on_prompt_input_detach_wanted(self) -> None:
        """Takes back what was attached last."""
        for attached in (self._attachments, self._ran):
            if attached:
                attached.pop()
                self._show_attached()
                return

    def _completions(self, before: str) -> list[InputCompletion]:
        return command_completions(before) or self._paths.completions(before)

    def _show_attached(self) -> None:
        names = [*(one.title for one in self._ran), *map(str, self._attachments)]
        self._attached.display = bool(names)
        self._attached.update(attached_line(names))
