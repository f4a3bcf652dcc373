"""The frontmatter of plans: YAML between two lines of dashes that opens a text. Pure; what is not changed stays so.

Values are replaced in the text itself, never dumped, so that a plan keeps every byte of a person's spelling. It sets
single fields to texts. ``tools/dialects/mounts/frontmatter_patch.py`` appends to lists and merges mappings, as a patch
asks; that cannot be spliced, so it loads and dumps the whole, reads aliases since it writes them back as such, and
takes only ``---`` for the end.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode

from toolcrib.core.errors import InvalidFrontmatter

MAX_CHARACTERS: Final = 32_768
MAX_DEPTH: Final = 16

_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")
_CLOSING = re.compile(rb"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


def split(content: bytes) -> tuple[bytes, bytes]:
    """The frontmatter with its fences, which is empty if there is none, and what follows it."""
    opening = _OPENING.match(content)
    if opening is None:
        return b"", content
    closing = _CLOSING.search(content, opening.end())
    if closing is None:
        raise _unreadable("it begins with `---` and no later line is `---`")
    return content[: closing.end()], content[closing.end() :]


def fields_of(head: bytes) -> dict[str, Any]:
    """What frontmatter says, as JSON can hold it. Dates and times come as they are written."""
    return _fields(_inside(head)[1])


def made(fields: Mapping[str, str]) -> bytes:
    """New frontmatter with these fields."""
    return f"---\n{''.join(f'{name}: {_scalar(value)}{chr(10)}' for name, value in fields.items())}---\n".encode()


def changed(head: bytes, fields: Mapping[str, str]) -> bytes:
    """The same frontmatter with these fields: others, comments, order and quotes stay, and what is new comes last."""
    opening, text, closing = _inside(head)
    before = _fields(text)
    for name, value in fields.items():
        if before.get(name) != value:
            text = _with(text, name, value, line_end="\r\n" if opening.endswith(b"\r\n") else "\n")
    if _fields(text) != {**before, **fields}:
        raise _unreadable("its fields are not written one to a line, so none can be changed")
    return opening + text.encode() + closing


def _inside(head: bytes) -> tuple[bytes, str, bytes]:
    """The opening fence, the YAML, the closing fence."""
    opening = _OPENING.match(head)
    closing = _CLOSING.search(head, opening.end()) if opening else None
    assert opening is not None and closing is not None
    try:
        text = head[opening.end() : closing.start()].decode()
    except UnicodeDecodeError:
        raise _unreadable("it is not UTF-8") from None
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(f"its {len(text):,} characters are too many; at most {MAX_CHARACTERS:,} are read")
    return opening[0], text, closing[0]


def _fields(text: str) -> dict[str, Any]:
    try:
        _refuse_bombs(text)
        loaded = _yaml().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        # The opening fence is the file's first line.
        where = f"line {mark.line + 2}, column {mark.column + 1}: " if mark else ""
        raise _unreadable(f"{where}{error.problem or error.context}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(f"not YAML: {str(error).splitlines()[0]}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise _unreadable("expected fields such as `title: …`")
    plain = _plain(loaded)
    assert isinstance(plain, dict)
    return plain


def _refuse_bombs(text: str) -> None:
    """A few aliases of aliases stand for more than fits in memory; deep nesting takes minutes to load."""
    depth = 0
    for event in _yaml().parse(text):
        if isinstance(event, AliasEvent):
            raise _unreadable("aliases (`*name`) are not read; write the value out")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _unreadable(f"it is nested more than {MAX_DEPTH} levels deep")


class _AsWritten(SafeConstructor):
    """Leaves dates and times as the text that they are."""


_AsWritten.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _AsWritten
    return yaml


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    match value:
        case dict():
            return {str(_plain(name)): _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case str():
            if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
                raise _unreadable("it names half a character (a lone surrogate)")
            return value
        case None | bool():
            return value
        case int():
            return value if value.bit_length() < 64 else hex(value)
        case float():
            return value if abs(value) < float("inf") else str(value)
        case _:
            return str(value)


def _with(text: str, name: str, value: str, *, line_end: str) -> str:
    """YAML with one field's value replaced where it stands, or the field added at the end."""
    root = _yaml().compose(text)
    for key, old in root.value if isinstance(root, MappingNode) else ():
        if key.value == name:
            return _replaced(text, key.end_mark.index, old.start_mark.index, old.end_mark.index, value, line_end)
    if text and not text.endswith("\n"):
        text += line_end
    return f"{text}{name}: {_scalar(value)}{line_end}"


def _replaced(text: str, after_key: int, start: int, end: int, value: str, line_end: str) -> str:
    if start == end:
        # No value at all: it belongs right behind the colon, not where the next thing begins.
        start = end = text.index(":", after_key) + 1
    space = "" if text[start - 1].isspace() else " "
    # A block (`|`, `>`, a list) takes its last line's end with it.
    tail = line_end if text[start:end].endswith("\n") else ""
    return text[:start] + space + _scalar(value) + tail + text[end:]


def _scalar(value: str) -> str:
    """A text as it is if YAML reads it back alike, and in quotes if not."""
    try:
        if value.isprintable() and _yaml().load(f"x: {value}\n") == {"x": value}:
            return value
    except (YAMLError, ValueError):
        pass
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _unreadable(why: str) -> InvalidFrontmatter:
    return InvalidFrontmatter(f"The frontmatter cannot be read: {why}. Mend it with `edit`.")
