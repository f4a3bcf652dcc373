"""What a message brings besides its words: files that it names, piped input, and the output of a person's commands.

It follows the words, in one block, so that the agent can tell it from what the person wrote.
"""

import json
import re
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from toolcrib.cli.command_options import aside
from toolcrib.client.http_client import StreamHandle
from toolcrib.core.display_text import escape_line
from toolcrib.core.errors import BadArguments, Misconfigured, NotFound, PermissionDenied
from toolcrib.core.paths import parse_absolute
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.schemas.sessions import MAX_MESSAGE_CHARACTERS
from toolcrib.sdk.workspace_location import WorkspaceLocation

_OPEN, _CLOSE = "<attached>", "</attached>"
# Room for the tags around what is attached.
_MARGIN = 1_000
# Of one file, and of the output of one command.
_MOST_LINES, _MOST_CHARACTERS = 2_000, 50_000
_MOST_OUTPUT = 20_000
# Models see these as they are; everything else is text.
SHOWN_TYPES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
# After a space or a bracket, so that an e-mail address is none. Quotes are for names with spaces.
_MENTION = re.compile(r'(?<![^\s(\[{])@(?:"([^"\n]+)"|([^\s"@]+))')
_PUNCTUATION = ".,;:!?)]}'"
# Nothing arrives for so long: perhaps nothing will, and the person should know what the command waits for.
_PATIENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class AttachedText:
    """One thing that a message brings, as the agent reads it."""

    tag: str
    text: str
    # Of the tag, such as ``path="/a.py"``.
    attributes: str = ""

    @property
    def title(self) -> str:
        """The first line: for a command, the command."""
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        start = f"{self.tag} {self.attributes}".strip()
        # A file cannot end the block, and go on as if the person wrote it.
        text = self.text.rstrip().replace(_CLOSE, _CLOSE.replace("/", "/ "))
        return f"<{start}>\n{text}\n</{self.tag}>"


def with_attached(words: str, attached: Sequence[AttachedText]) -> str:
    """Returns the message: the words, then what is attached."""
    if not attached:
        return words
    return "\n".join([words, "", _OPEN, *map(str, attached), _CLOSE])


def split_attached(message: str) -> tuple[str, str]:
    """Returns the words of a message and what is attached, which is empty if nothing is."""
    words, found, rest = message.partition(f"\n\n{_OPEN}\n")
    if not found or not rest.endswith(f"\n{_CLOSE}"):
        return message, ""
    return words, rest.removesuffix(f"\n{_CLOSE}")


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message as it is sent."""

    text: str
    # Paths of the workspace, and files of this machine outside of it.
    attachments: tuple[str | Path, ...] = ()


def prepare_message(
    location: WorkspaceLocation,
    words: str,
    *,
    attachments: Sequence[str | Path] = (),
    attached: Sequence[AttachedText] = (),
    names_files: bool = True,
) -> PreparedMessage:
    """Reads the files that the words name with ``@``, as the person. A name that is no file stays a word.

    Args:
        attachments: Images and PDFs to send besides those that the words name.
        attached: What to attach besides the files, such as the output of commands.
        names_files: False for words that the person did not type: no file is read.

    Raises:
        Misconfigured: All of it together is too long for a message.
        ToolcribError: A file may not be read.
    """
    images, texts = list(attachments), list(attached)
    for name in mentions(words) if names_files else ():
        found = _find_mentioned(location, name)
        if isinstance(found, AttachedText):
            texts.append(found)
        elif found is not None:
            images.append(found)
    text = with_attached(words, texts)
    if len(text) > MAX_MESSAGE_CHARACTERS:
        raise Misconfigured(
            f"With what is attached, the message has {len(text):,} characters; the limit is "
            f"{MAX_MESSAGE_CHARACTERS:,}. Attach less: the agent can read files itself."
        )
    return PreparedMessage(text, tuple(dict.fromkeys(images)))


def mentions(words: str) -> Iterator[str]:
    """Yields the names after ``@``, each once."""
    yield from dict.fromkeys(quoted or bare for quoted, bare in _MENTION.findall(words))


def _find_mentioned(location: WorkspaceLocation, name: str) -> AttachedText | str | None:
    """Returns a file's text, the path of an image or a PDF, or None if there is no such file or it is protected."""
    for path in _candidates(location, name):
        try:
            if ProtectedPaths(()).protects_reading(parse_absolute(path)) is not None:
                # The words may be another's, such as those of an issue that the person pasted.
                continue
            if path.lower().endswith(SHOWN_TYPES):
                return str(location.client.call(location.id, "file_info", {"path": path})["path"])
            found = location.client.call(location.id, "read", {"path": path, "limit": _MOST_LINES})
        except (NotFound, BadArguments):
            # No such file, or a folder: the agent can look itself.
            continue
        return _file_text(found)
    return None


def _candidates(location: WorkspaceLocation, name: str) -> Iterator[str]:
    """Yields the paths that a name may mean: below the person's directory, or below the project's."""
    for one in dict.fromkeys((name, name.rstrip(_PUNCTUATION))):
        if location.directory and not one.startswith("/"):
            yield f"/{location.directory}/{one}"
        yield f"/{one.lstrip('/')}"


def _file_text(found: dict[str, Any]) -> AttachedText | None:
    content = found["content"]
    if not isinstance(content, str):
        if isinstance(content, dict) and content.get("encoding") == "base64":
            return None
        content = json.dumps(content, indent=2, ensure_ascii=False)
    attributes = f'path="{found["path"]}"'
    lines, total = content[:_MOST_CHARACTERS].count("\n") + 1, found["total_lines"]
    if len(content) > _MOST_CHARACTERS or found["truncated"]:
        attributes += f' lines="1-{lines} of {total}"'
    return AttachedText("file", content[:_MOST_CHARACTERS], attributes)


def run_command(
    location: WorkspaceLocation,
    session_id: UUID,
    command: str,
    *,
    on_output: Callable[[str], None],
    handle: StreamHandle | None = None,
) -> dict[str, Any]:
    """Executes a person's own command in the workspace's sandbox, as the person, in a session. It can be undone.

    Raises:
        ToolcribError: It may not run, or it was ended.
    """
    result: dict[str, Any] = location.client.call(
        location.id,
        "bash",
        {"command": command},
        session_id=session_id,
        as_person=True,
        on_output=on_output,
        handle=handle,
    )
    return result


def command_text(command: str, result: dict[str, Any]) -> AttachedText:
    """Returns a person's command and the end of its output."""
    output = str(result.get("output") or "")
    if (more := len(output) - _MOST_OUTPUT) > 0:
        output = f"… {more:,} earlier characters\n{output[-_MOST_OUTPUT:]}"
    code = (result.get("metadata") or {}).get("exitCode")
    return AttachedText("command", f"$ {command}\n{output}", "" if code is None else f'exit_code="{code}"')


def image_at(location: WorkspaceLocation, text: str) -> str | Path | None:
    """Returns the image or PDF that a dropped, pasted or typed path means; None if it is none.

    A path of the workspace is returned as a text, and one of this machine outside of it as a path.

    Raises:
        PermissionDenied: It is in the project, and a symbolic link leads out of it. The project's author may not be
            the person.
    """
    name = text.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    elif name.startswith("file://"):
        name = unquote(urlsplit(name).path)
    else:
        # Terminals escape what a shell would not take as it is.
        name = re.sub(r"\\(.)", r"\1", name)
    if "\n" in name or not name.lower().endswith(SHOWN_TYPES):
        return None
    path = Path(name).expanduser()
    here = None if location.tree is None else location.tree / location.directory / path
    if here is None or not here.is_file():
        found = None if path.is_absolute() and path.is_file() else _find_mentioned(location, name)
        if isinstance(found, str) or not path.is_file():
            return found if isinstance(found, str) else None
        here = path
    if location.tree is None:
        return here
    tree, target = location.tree.resolve(), here.resolve()
    if target.is_relative_to(tree):
        return f"/{target.relative_to(tree).as_posix()}"
    if _is_led_out(tree, here.absolute()):
        raise PermissionDenied(
            f"{escape_line(name)} leads out of the project, to {escape_line(str(target))}. "
            "To send that file, give its own path."
        )
    return here


def _is_led_out(tree: Path, path: Path) -> bool:
    """Whether a symbolic link in ``tree`` leads out of it on the way to a file, however the way into it is spelled.

    Args:
        tree: Without symbolic links.
        path: Absolute, of a file that exists.
    """
    at, ahead = Path(path.anchor), list(reversed(path.parts[1:]))
    while ahead:
        step = at / ahead.pop()
        if step.name == "..":
            at = at.parent
        elif not step.is_symlink():
            at = step
        elif at.is_relative_to(tree) and not step.resolve().is_relative_to(tree):
            return True
        else:
            link = step.readlink()
            at = Path(link.anchor) if link.is_absolute() else at
            ahead += reversed(link.parts[1:] if link.is_absolute() else link.parts)
    return False


def task_from(prompt: str | None) -> tuple[str, list[AttachedText]]:
    """Returns the task of a command line and what is attached to it: the piped input, unless that is the task itself.

    Raises:
        Misconfigured: There is no task, or the input is no text, or it is too long for a message.
    """
    is_typed = sys.stdin is None or sys.stdin.isatty()
    if prompt is None or prompt == "-":
        text = "" if is_typed and prompt is None else _read_input(MAX_MESSAGE_CHARACTERS)
        if text.strip():
            return text, []
    elif prompt.strip():
        text = "" if is_typed else _read_input(MAX_MESSAGE_CHARACTERS - len(prompt) - _MARGIN)
        return prompt, [AttachedText("stdin", text)] if text.strip() else []
    raise Misconfigured('No task given. Usage: toolcrib run "…"')


def _read_input(most: int) -> str:
    """Reads standard input to its end, which must come before this many characters."""
    if not sys.stdin.isatty() and not select.select([sys.stdin], [], [], _PATIENCE_SECONDS)[0]:
        aside("Waiting for standard input. If there is none, add </dev/null.")
    # No character has more than four bytes.
    body = sys.stdin.buffer.read(4 * max(0, most) + 1)
    text = body.decode(errors="replace")
    if len(text) > most:
        raise Misconfigured(
            f"Standard input has more than {max(0, most):,} characters, which is too long for a message. Save it to a "
            "file of the project, and name the file in the task."
        )
    if "\0" in text:
        raise Misconfigured("Standard input is not text. Save it to a file of the project, and name it in the task.")
    return text
