"""How well a command is held, and what is missing. States facts; finds none of them out."""

from dataclasses import dataclass
from enum import StrEnum

from toolcrib.core.errors import ToolFailed


class IsolationLevel(StrEnum):
    """From the strongest to none. Only ``namespaces`` is offered unless an operator says otherwise in words."""

    NAMESPACES = "namespaces"
    PROCESS = "process"
    NONE = "none"

    def at_least(self, minimum: "IsolationLevel") -> bool:
        return _ORDER.index(self) <= _ORDER.index(minimum)


_ORDER = (IsolationLevel.NAMESPACES, IsolationLevel.PROCESS, IsolationLevel.NONE)


@dataclass(frozen=True, slots=True)
class IsolationGap:
    """One thing that does not hold here. An ``open`` one lowers the level; the others are made good otherwise."""

    name: str
    fact: str
    remedy: str
    open: bool = True


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the probe found: the level in force, what holds and what does not."""

    level: IsolationLevel
    minimum: IsolationLevel
    held: tuple[str, ...]
    gaps: tuple[IsolationGap, ...]
    overlay: bool

    @property
    def offered(self) -> bool:
        """Whether commands may be run at all."""
        return self.level is not IsolationLevel.NONE and self.level.at_least(self.minimum)

    @property
    def reason(self) -> str | None:
        """Why commands are off, with the remedy; None where they are on."""
        if self.offered:
            return None
        faults = "; ".join(f"{gap.fact} {gap.remedy}" for gap in self.gaps if gap.open)
        return f"Commands are off: isolation is '{self.level}' and '{self.minimum}' is required. {faults}".rstrip()

    def require(self) -> None:
        """Raises ToolFailed with the reason where commands are off."""
        if self.reason:
            raise ToolFailed(f"{self.reason} `toolcrib doctor` shows it in full.")
