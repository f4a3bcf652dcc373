"""The criteria for client programs: reads them from the tables in this directory and records the result of each."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).parent
CLIENTS = {
    "studio": "The studio client",
    "packages": "Agent packages",
    "plain": "The plain client",
    "tools_api": "The Tools API",
}
_ROW = re.compile(r"^\| (?P<id>\S+) \| (?P<line>[^|]+?) \| (?P<what>.+?) \|(?: (?P<instead>.+?) \| ?| \|)$")


@dataclass(frozen=True, slots=True)
class Criterion:
    """One criterion of a page. ``instead`` says what Toolcrib deliberately does instead, if it does."""

    id: str
    line: str
    what: str
    instead: str | None


class State(StrEnum):
    SHOWN = "shown"
    DEVIATING = "deviating"
    NOT_SHOWN = "not shown"


def read_criteria(client: str) -> dict[str, Criterion]:
    """The criteria of one client's table, by id, in the table's order."""
    found: dict[str, Criterion] = {}
    for row in (HERE / f"{client}.md").read_text().splitlines():
        if not row.startswith("| ") or row.startswith("| id |"):
            continue
        match = _ROW.match(row)
        assert match, f"{client}.md has a row that cannot be read: {row}"
        criterion = Criterion(match["id"], match["line"], match["what"].replace("\\|", "|"), match["instead"])
        assert criterion.id not in found, f"{client}.md has {criterion.id} twice."
        found[criterion.id] = criterion
    return found


def read_not_yet(client: str) -> set[str]:
    """The criteria that the server does not meet yet. The list only shrinks."""
    lines = (HERE / "not_yet.txt").read_text().splitlines()
    named = (line.split("#")[0].strip() for line in lines)
    return {line.partition(" ")[2] for line in named if line.startswith(f"{client} ")}


@dataclass
class Report:
    """The result of one program. A criterion is shown when every block that names it runs without a failure."""

    client: str
    criteria: dict[str, Criterion] = field(init=False)
    _failures: dict[str, str] = field(default_factory=dict)
    _played: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.criteria = read_criteria(self.client)

    @contextmanager
    def shows(self, *ids: str) -> Iterator[None]:
        """Marks a block that shows these criteria unless it fails. The program continues either way."""
        for one in ids:
            assert one in self.criteria, f"{self.client}.md has no criterion {one!r}."
        self._played.update(ids)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any error means that these criteria were not shown
            for one in ids:
                self._failures.setdefault(one, _reason(error))

    def state(self, criterion_id: str) -> tuple[State, str]:
        """The result of a criterion, and the reason if it was not shown."""
        if criterion_id in self._failures:
            return State.NOT_SHOWN, self._failures[criterion_id]
        if criterion_id not in self._played:
            return State.NOT_SHOWN, "not played"
        instead = self.criteria[criterion_id].instead
        return (State.DEVIATING, instead) if instead else (State.SHOWN, "")

    def counts(self) -> dict[State, int]:
        states = [self.state(one)[0] for one in self.criteria]
        return {state: states.count(state) for state in State}

    def not_shown(self) -> dict[str, str]:
        return {one: self.state(one)[1] for one in self.criteria if self.state(one)[0] is State.NOT_SHOWN}

    def lines(self) -> Iterator[str]:
        """One line per criterion, in the table's order."""
        for one in self.criteria.values():
            state, why = self.state(one.id)
            yield f"{one.id} (line {one.line}): {state}{f' ({why})' if why else ''}"


def _reason(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:300]}…"
