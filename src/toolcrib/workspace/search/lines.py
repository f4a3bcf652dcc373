"""The lines of a text as a search counts and shows them: from 1, without their ends, in Unicode."""

# More of a line than this tells nobody anything.
_SHOWN = 2_000
_MARK = b"\xef\xbb\xbf"


class Lines:
    """What a text holds between newlines. A carriage return before one belongs to it, a byte order mark to nothing."""

    def __init__(self, body: bytes) -> None:
        self._lines = body.split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()

    def __len__(self) -> int:
        return len(self._lines)

    def raw(self, number: int) -> bytes | None:
        """A line as it stands in the file, but for the newline; ``None`` if there is none."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else None

    def text(self, number: int) -> str:
        """A line as a pattern is matched against it."""
        return line_text(self._lines[number - 1], number)

    def shown(self, first: int, last: int) -> list[str]:
        """The lines between two numbers, both included, as far as they exist."""
        return [shown(self.text(number)) for number in range(max(1, first), min(last, len(self)) + 1)]


def line_text(line: bytes, number: int) -> str:
    """A line as it stands in a file, without its end and its mark, in Unicode."""
    line = line.removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(_MARK)
    return line.decode("utf-8", "replace")


def shown(line: str) -> str:
    """A line as it is given out: one that is endless ends."""
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}… [{len(line) - _SHOWN:,} more characters]"
