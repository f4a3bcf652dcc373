"""A JSON value as lines that a person would write: what is searched of a chat, a canvas and the like."""

from collections.abc import Iterator
from typing import Any

from toolcrib.domain.files import ContentKind, File
from toolcrib.workspace.content import decoded


def stored_text(file: File, body: bytes) -> bytes:
    """What is searched of a file that does not stand on disk; nothing of one that is not text."""
    if file.state.content is ContentKind.BINARY:
        return b""
    value = decoded(body, file.state.content) if file.is_virtual else None
    return readable(value).encode() if isinstance(value, dict | list) else body


def readable(value: Any) -> str:
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _named(f"{indent}{key}:", inner, indent)
        case list():
            for inner in value:
                yield from _named(f"{indent}-", inner, indent)
        case _:
            yield from (f"{indent}{line}" for line in _scalar(value).split("\n"))


def _named(name: str, value: Any, indent: str) -> Iterator[str]:
    """On the same line if it fits there, below it otherwise."""
    if isinstance(value, dict | list) or "\n" in (text := _scalar(value)):
        yield name
        yield from _lines(value, indent + "  ")
        return
    yield f"{name} {text}"


def _scalar(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
