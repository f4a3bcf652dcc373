"""The frontmatter of plans: YAML between two lines of dashes at the start of a text.

Sets single fields to strings. Values are replaced in the text itself, never dumped, so that everything else keeps its
spelling byte for byte. ``frontmatter_patch.py`` differs: it appends to lists and merges mappings.
That needs loading and dumping, so it accepts aliases, and only ``---`` ends the frontmatter there.
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
    """Return the frontmatter with its fences (empty if there is none), and the rest."""
    opening = _OPENING.match(content)
    if opening is None:
        return b"", content
    closing = _CLOSING.search(content, opening.end())
    if closing is None:
        raise _unreadable("it begins with `---` and no later line is `---`")
    return content[: closing.end()], content[closing.end() :]


def fields_of(head: bytes) -> dict[str, Any]:
    """Return the fields as JSON values. Dates and times stay text."""
    return _fields(_inside(head)[1])


def made(fields: Mapping[str, str]) -> bytes:
    """Render new frontmatter with these fields."""
    return f"---\n{''.join(f'{name}: {_scalar(value)}{chr(10)}' for name, value in fields.items())}---\n".encode()


def changed(head: bytes, fields: Mapping[str, str]) -> bytes:
    """Set fields. Other fields, comments, order and quotes stay; new fields come last."""
    opening, text, closing = _inside(head)
    before = _fields(text)
    for name, value in fields.items():
        if before.get(name) != value:
            text = _with(text, name, value, line_end="\r\n" if opening.endswith(b"\r\n") else "\n")
    if _fields(text) != {**before, **fields}:
        raise _unreadable("its fields are not one per line, so they cannot be changed")
    return opening + text.encode() + closing


def _inside(head: bytes) -> tuple[bytes, str, bytes]:
    """Return the opening fence, the YAML and the closing fence."""
    opening = _OPENING.match(head)
    closing = _CLOSING.search(head, opening.end()) if opening else None
    assert opening is not None and closing is not None
    try:
        text = head[opening.end() : closing.start()].decode()
    except UnicodeDecodeError:
        raise _unreadable("it is not UTF-8") from None
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(f"it has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
    return opening[0], text, closing[0]


def _fields(text: str) -> dict[str, Any]:
    try:
        _reject_bombs(text)
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


def _reject_bombs(text: str) -> None:
    """Reject aliases, which can expand beyond all memory, and deep nesting, which takes minutes to load."""
    depth = 0
    for event in _yaml().parse(text):
        if isinstance(event, AliasEvent):
            raise _unreadable("aliases (`*name`) are not supported; write the value out")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _unreadable(f"it is nested more than {MAX_DEPTH} levels deep")


class _AsWritten(SafeConstructor):
    """Loads dates and times as the text that they are."""


_AsWritten.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _AsWritten
    return yaml


def _plain(value: Any) -> Any:
    """Convert a value to one that JSON can represent."""
    match value:
        case dict():
            return {str(_plain(name)): _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case str():
            if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
                raise _unreadable("it contains a lone surrogate")
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
    """Replace one field's value in place, or append the field."""
    root = _yaml().compose(text)
    for key, old in root.value if isinstance(root, MappingNode) else ():
        if key.value == name:
            return _replaced(text, key.end_mark.index, old.start_mark.index, old.end_mark.index, value, line_end)
    if text and not text.endswith("\n"):
        text += line_end
    return f"{text}{name}: {_scalar(value)}{line_end}"


def _replaced(text: str, after_key: int, start: int, end: int, value: str, line_end: str) -> str:
    if start == end:
        # There is no value: insert it right after the colon, not where the next token begins.
        start = end = text.index(":", after_key) + 1
    space = "" if text[start - 1].isspace() else " "
    # A block (`|`, `>`, a list) includes its last line end.
    tail = line_end if text[start:end].endswith("\n") else ""
    return text[:start] + space + _scalar(value) + tail + text[end:]


def _scalar(value: str) -> str:
    """Write a string plainly if YAML reads it back alike, otherwise in quotes."""
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
    return InvalidFrontmatter(f"The frontmatter cannot be parsed: {why}. Fix it with `edit`.")
