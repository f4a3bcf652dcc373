"""Patches a document's frontmatter: YAML between two lines of ``---``. Comments and order stay.

Patches append to lists and merge mappings, so the YAML is loaded and dumped again, and spacing may change.
``frontmatter.py`` is for plans: it replaces single strings in the text and never dumps.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

from toolcrib.core.errors import InvalidFrontmatter

_BOM = b"\xef\xbb\xbf"
_FENCE = re.compile(rb"---[ \t]*(\r?\n)")
_CLOSING = re.compile(rb"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_LIST_INDENT = re.compile(r"^\S.*:[ \t]*(?:#.*)?\n( *)- ", re.MULTILINE)
# Longer or deeper frontmatter takes long to load, and has no real use.
_MOST_CHARACTERS = 65_536
_DEEPEST = 32


def patched(document: bytes, update: Mapping[str, Any]) -> bytes:
    """Update a document's frontmatter: what to append or set, by field. Runs in a worker."""
    return rewritten(document, lambda data: apply_update(update, data))


def apply_update(update: Mapping[str, Any], data: CommentedMap) -> bool:
    """Update the loaded frontmatter. Returns whether anything changed."""
    changed = [_updated(data, key, **part) for key, part in update.items()]
    return any(changed)


def _updated(data: CommentedMap, key: str, *, append: Sequence[Any] | None = None, set: Any = None) -> bool:
    if append is not None:
        return _append(data, key, append, unique=key != "decisionLog")
    return _merge(data, key, set) if isinstance(set, dict) else _put(data, key, set)


def _append(data: CommentedMap, key: str, values: Sequence[Any], *, unique: bool) -> bool:
    known = data.get(key)
    if known is None:
        known = data[key] = []
    if not isinstance(known, list):
        raise InvalidFrontmatter(f"`{key}` is not a list, so nothing can be appended to it.")
    count = len(known)
    for value in values:
        if not unique or value not in known:
            known.append(value)
    return len(known) != count


def _merge(data: CommentedMap, key: str, values: Mapping[str, Any]) -> bool:
    known = data.get(key)
    if known is None:
        known = data[key] = {}
    if not isinstance(known, dict):
        raise InvalidFrontmatter(f"`{key}` is not a mapping, so nothing can be set in it.")
    changed = [_put(known, name, value) for name, value in values.items()]
    return any(changed)


def _put(data: dict[str, Any], key: str, value: Any) -> bool:
    if key in data and data[key] == value:
        return False
    data[key] = value
    return True


def rewritten(document: bytes, change: Callable[[CommentedMap], bool]) -> bytes:
    """Return ``document`` with its frontmatter as ``change`` leaves it; unchanged if ``change`` returns false.

    A document without frontmatter gets one. Everything after it stays byte for byte.
    """
    bom = _BOM if document.startswith(_BOM) else b""
    head, end, rest = _split(document[len(bom) :])
    data = _loaded(head)
    if not change(data):
        return document
    try:
        written = _dumped(data, head).replace("\n", end).encode()
    except (RecursionError, ValueError, YAMLError):
        raise InvalidFrontmatter(
            "A value cannot be encoded as YAML: it is nested too deeply or contains invalid text."
        ) from None
    fence = f"---{end}".encode()
    return bom + fence + written + fence + rest


def _split(document: bytes) -> tuple[str, str, bytes]:
    """Return the YAML, its line end, and the rest."""
    opening = _FENCE.match(document)
    if opening is None:
        return "", "\r\n" if b"\r\n" in document else "\n", document
    closing = _CLOSING.search(document, opening.end())
    if closing is None:
        raise InvalidFrontmatter("The frontmatter is not closed: a line of `---` is missing after it.")
    try:
        head = document[opening.end() : closing.start()].decode()
    except UnicodeDecodeError as error:
        raise InvalidFrontmatter(f"The frontmatter is not UTF-8: {error.reason} at byte {error.start}.") from None
    return head.replace("\r\n", "\n"), opening[1].decode(), document[closing.end() :]


def _loaded(text: str) -> CommentedMap:
    if len(text) > _MOST_CHARACTERS:
        raise InvalidFrontmatter(f"The frontmatter has {len(text):,} characters; the limit is {_MOST_CHARACTERS:,}.")
    try:
        _reject_depth(text)
        data = _yaml(text).load(text)
    except MarkedYAMLError as error:
        # The mark counts from 0, and the opening `---` is the document's first line.
        where = f"line {error.problem_mark.line + 2}: " if error.problem_mark else ""
        raise InvalidFrontmatter(f"The frontmatter cannot be parsed: {where}{error.problem}.") from None
    except (YAMLError, ValueError) as error:
        raise InvalidFrontmatter(f"The frontmatter cannot be parsed: {str(error).splitlines()[0]}.") from None
    if data is None:
        return CommentedMap()
    if not isinstance(data, CommentedMap):
        raise InvalidFrontmatter("The frontmatter is not a mapping of `key: value`.")
    return data


def _reject_depth(text: str) -> None:
    depth = 0
    for event in _yaml(text).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEEPEST:
            raise InvalidFrontmatter(f"The frontmatter is nested more than {_DEEPEST} levels deep.")


def _dumped(data: CommentedMap, text: str) -> str:
    written = StringIO()
    _yaml(text).dump(data, written)
    return written.getvalue()


def _yaml(text: str) -> YAML:
    """Configure YAML to keep the text's style: its quotes, its long lines, its list indentation."""
    yaml: Any = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    list_indent = _LIST_INDENT.search(text)
    offset = len(list_indent[1]) if list_indent else 2
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    return yaml  # type: ignore[no-any-return]
