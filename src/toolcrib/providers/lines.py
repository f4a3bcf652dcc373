"""Cuts a byte stream into server-sent events or lines of JSON, within bounds. Knows nothing of what they mean."""

from collections.abc import Iterator

from toolcrib.providers.faults import broken

MAX_LINE = 8 * 1024 * 1024
MAX_STREAM = 64 * 1024 * 1024
_RETURN = ord("\r")


class Lines:
    """Whole lines of what was fed, without their ends. What follows the last line end waits for more."""

    def __init__(self, *, max_line: int = MAX_LINE, max_stream: int = MAX_STREAM) -> None:
        self._max_line = max_line
        self._left = max_stream
        # Kept in pieces until a line ends: gluing at every piece would make a slow long line quadratic.
        self._pieces: list[bytes] = []
        self._waiting = 0

    @property
    def is_between(self) -> bool:
        """Whether nothing waits for its line's end."""
        return not self._pieces

    def count(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        if self._left < 0:
            raise broken("The answer is longer than any answer may be.")

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self.count(chunk)
        *whole, rest = chunk.split(b"\n")
        if not whole:
            self._keep(rest)
            return
        first = b"".join([*self._pieces, whole[0]])
        self._pieces.clear()
        self._waiting = 0
        for line in (first, *whole[1:]):
            if len(line) > self._max_line:
                raise broken("The answer holds a line that is longer than any may be.")
            yield line.removesuffix(b"\r")
        self._keep(rest)

    def rest(self) -> bytes:
        """What stands after the last line end, when nothing more comes."""
        return b"".join(self._pieces)

    def _keep(self, rest: bytes) -> None:
        self._waiting += len(rest)
        if self._waiting > self._max_line:
            raise broken("The answer holds a line that is longer than any may be.")
        if rest:
            self._pieces.append(rest)


class ServerSentEvents:
    """The data of server-sent events. An event counts when its empty line came; comments and other fields do not."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if not self._data and self._lines.is_between and _is_one_event(chunk):
            # Nearly all chunks are of this kind.
            self._lines.count(chunk)
            return iter((chunk[6:-2],))
        return self._fed(chunk)

    def _fed(self, chunk: bytes) -> Iterator[bytes]:
        for line in self._lines.feed(chunk):
            if not line:
                if self._data:
                    yield self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._size += len(line)
                if self._size > MAX_LINE:
                    raise broken("The answer holds an event that is longer than any may be.")

    def finish(self) -> Iterator[bytes]:
        """An event whose empty line never came was cut."""
        return iter(())


def _is_one_event(chunk: bytes) -> bool:
    """Whether it is one line of data and the empty line after it, in the usual form."""
    return (
        chunk.startswith(b"data: ")
        and chunk.endswith(b"\n\n")
        and chunk.find(b"\n") == len(chunk) - 2
        and chunk[-3] != _RETURN
        and len(chunk) <= MAX_LINE
    )


class JsonLines:
    """Lines that are not empty; the last may lack its end."""

    def __init__(self) -> None:
        self._lines = Lines()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        return (line for line in self._lines.feed(chunk) if line.strip())

    def finish(self) -> Iterator[bytes]:
        rest = self._lines.rest()
        return iter([rest] if rest.strip() else ())
