"""What a tool call would touch, declared before it runs."""

from dataclasses import dataclass
from enum import StrEnum

from toolcrib.domain.places import Place


class Category(StrEnum):
    """What kind of thing a tool does."""

    FILE = "file"
    EXEC = "exec"
    SEARCH = "search"
    MCP = "mcp"
    PLAN = "plan"
    HUMAN = "human"


class Danger(StrEnum):
    """Whether a guided agent needs a person's yes for a call."""

    SAFE = "safe"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call reads, writes, runs and contacts.

    ``reads_each`` are judged one by one: a batch whose third file is protected still gives the others.
    ``needs`` must stand there beforehand. Nobody is refused for it; a call that makes it goes first.
    """

    reads: tuple[Place, ...] = ()
    reads_each: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()
    needs: tuple[Place, ...] = ()
    runs: str | None = None
    contacts: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        return (*self.reads, *self.reads_each, *self.writes)

    @property
    def changes_something(self) -> bool:
        """Asking elsewhere is reading, unless the tool is dangerous."""
        return bool(self.writes or self.runs)
