"""What was typed before, so that the arrow keys bring it back; kept in a file of the directory's, if there is one."""

import json
from contextlib import suppress
from pathlib import Path

_MOST = 500


class History:
    """Walked up and down from the newest. What was being typed is kept at the lower end."""

    def __init__(self, notes: Path | None) -> None:
        self._file = notes / "said.jsonl" if notes else None
        self._entries = _read(self._file)
        self._at = len(self._entries)
        self._draft = ""

    def add(self, text: str) -> None:
        if not self._entries or self._entries[-1] != text:
            self._entries = [*self._entries, text][-_MOST:]
            self._write()
        self._at = len(self._entries)

    def older(self, typed: str) -> str | None:
        """The one before; None at the oldest."""
        if self._at == 0:
            return None
        if self._at == len(self._entries):
            self._draft = typed
        self._at -= 1
        return self._entries[self._at]

    def newer(self) -> str | None:
        """The one after, and what was being typed after the newest; None below that."""
        if self._at == len(self._entries):
            return None
        self._at += 1
        return self._draft if self._at == len(self._entries) else self._entries[self._at]

    def _write(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            self._file.touch(mode=0o600)
            self._file.write_text("".join(json.dumps(entry) + "\n" for entry in self._entries))


def _read(file: Path | None) -> list[str]:
    if file is None or not file.exists():
        return []
    with suppress(OSError, ValueError):
        return [str(json.loads(line)) for line in file.read_text().splitlines()][-_MOST:]
    return []
