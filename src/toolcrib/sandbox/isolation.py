"""The isolation level of commands, and what is missing for it. Values only; ``probe`` determines them."""

from dataclasses import dataclass
from enum import StrEnum

from toolcrib.core.errors import ToolFailed


class IsolationLevel(StrEnum):
    """From the strongest to none. Only ``namespaces`` is accepted unless an operator configures otherwise."""

    NAMESPACES = "namespaces"
    PROCESS = "process"
    NONE = "none"

    def at_least(self, minimum: "IsolationLevel") -> bool:
        """Whether this level is as strong as ``minimum``."""
        return _ORDER.index(self) <= _ORDER.index(minimum)


_ORDER = (IsolationLevel.NAMESPACES, IsolationLevel.PROCESS, IsolationLevel.NONE)


@dataclass(frozen=True, slots=True)
class IsolationGap:
    """One missing protection. An ``open`` gap lowers the level; the others are compensated in another way."""

    name: str
    fact: str
    remedy: str
    open: bool = True


@dataclass(frozen=True, slots=True)
class Isolation:
    """The result of the probe: the actual level, what works and what is missing."""

    level: IsolationLevel
    minimum: IsolationLevel
    held: tuple[str, ...]
    gaps: tuple[IsolationGap, ...]
    overlay: bool

    @property
    def offered(self) -> bool:
        """Whether commands may run at all."""
        return self.level is not IsolationLevel.NONE and self.level.at_least(self.minimum)

    @property
    def reason(self) -> str | None:
        """Why commands are off, with the remedy; None if they are on."""
        if self.offered:
            return None
        faults = "; ".join(f"{gap.fact} {gap.remedy}" for gap in self.gaps if gap.open)
        return f"Commands are off: isolation is '{self.level}' and '{self.minimum}' is required. {faults}".rstrip()

    def require(self) -> None:
        """Raise ``ToolFailed`` with the reason if commands are off."""
        if self.reason:
            raise ToolFailed(f"{self.reason} `toolcrib doctor` shows it in full.")
