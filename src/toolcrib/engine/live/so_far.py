"""What sources have said so far, for who joins late. In memory only: the whole text becomes an event."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from toolcrib.domain.events import Delta
from toolcrib.engine.live.keys import Key, key_of

# Of a longer text the beginning is forgotten; its offset says so.
MAX_CHARACTERS: Final = 200_000
# A source that says nothing for so long has ended, or its node has.
SILENT_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Said:
    last: Delta
    start: int
    texts: list[str]
    length: int
    at: float

    @property
    def end(self) -> int:
        return self.start + self.length

    def as_delta(self) -> Delta:
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return replace(self.last, text=self.texts[0], offset=self.start)


class SoFar:
    """The texts that are still growing, by session and source."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[Key, dict[str, _Said]] = {}

    def add(self, delta: Delta) -> None:
        sources = self._sessions.setdefault(key_of(delta), {})
        said = sources.get(delta.source)
        if said is not None and delta.attempt < said.last.attempt:
            return
        if said is None or delta.attempt > said.last.attempt or not said.start <= delta.offset <= said.end:
            # A new source or attempt, or a gap: what is known begins here.
            sources[delta.source] = _Said(delta, delta.offset, [delta.text], len(delta.text), self._clock())
            return
        said.at = self._clock()
        news = delta.text[said.end - delta.offset :]
        said.texts.append(news)
        said.length += len(news)
        if said.length > 2 * MAX_CHARACTERS:
            kept = "".join(said.texts)[-MAX_CHARACTERS:]
            said.start, said.texts, said.length = said.end - len(kept), [kept], len(kept)

    def of(self, key: Key) -> list[Delta]:
        """Each source's whole text as one delta, in the order in which they began."""
        return [said.as_delta() for said in self._sessions.get(key, {}).values()]

    def all(self) -> list[Delta]:
        return [delta for key in self._sessions for delta in self.of(key)]

    def end(self, key: Key, source: str) -> None:
        """The source has finished: what it said is an event by now."""
        sources = self._sessions.get(key, {})
        sources.pop(source, None)
        if not sources:
            self._sessions.pop(key, None)

    def drop(self, key: Key) -> None:
        self._sessions.pop(key, None)

    def forget_silent(self) -> None:
        before = self._clock() - SILENT_SECONDS
        for key, sources in list(self._sessions.items()):
            for source in [source for source, said in sources.items() if said.at < before]:
                self.end(key, source)
