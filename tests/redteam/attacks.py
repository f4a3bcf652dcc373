"""Counts attacks: how many were tried, how many failed, and which succeeded."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

PROPERTY = "attacks"
# The first ones are enough to understand a test that breaks in a thousand ways.
_SHOWN = 20


@dataclass
class Attacks:
    """The attacks of one test. A test that records none counts as one attack itself."""

    tried: int = 0
    broke: list[str] = field(default_factory=list)

    def held(self, name: str, *, count: int = 1) -> None:
        """Record attacks that failed."""
        assert name
        self.tried += count

    def succeeded(self, name: str, how: object) -> None:
        """Record an attack that succeeded. The test fails at its end, when all others were tried too."""
        self.tried += 1
        self.broke.append(f"{name}: {how}")

    def judge(self, name: str, *, held: bool, how: object = "") -> None:
        """Record an attack by whether the defence worked."""
        if held:
            self.held(name)
        else:
            self.succeeded(name, how)

    def check(self) -> None:
        """Raise AssertionError if any attack succeeded."""
        assert not self.broke, f"{len(self.broke)} of {self.tried} attacks succeeded:\n" + "\n".join(
            self.broke[:_SHOWN]
        )


@dataclass
class Tally:
    """Attacks tried and failed per area, over the complete campaign."""

    areas: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, nodeid: str, recorded: Iterable[tuple[str, object]], *, passed: bool) -> None:
        """Add one test: by what it recorded, or as one attack."""
        tried, held = 1, int(passed)
        for name, value in recorded:
            if name == PROPERTY and isinstance(value, list | tuple) and value[0]:
                tried, held = value
                # It failed by its own assertion, after the recorded attacks had failed.
                if not passed and tried == held:
                    tried += 1
        area = area_of(nodeid)
        before = self.areas.get(area, (0, 0))
        self.areas[area] = (before[0] + tried, before[1] + held)

    def lines(self) -> list[str]:
        """Return the table that is printed at the end: ``area: tried / held``."""
        rows = [*sorted(self.areas.items()), ("all", (self.tried, self.held))]
        width = max(len(area) for area, _ in rows) + 1
        return [f"{area + ':':<{width}} {tried:>7,} tried / {held:>7,} held" for area, (tried, held) in rows]

    @property
    def tried(self) -> int:
        return sum(tried for tried, _ in self.areas.values())

    @property
    def held(self) -> int:
        return sum(held for _, held in self.areas.values())


def is_attack(nodeid: str) -> bool:
    return nodeid.startswith(("tests/redteam/", "tests/adversarial/"))


def area_of(nodeid: str) -> str:
    return PurePosixPath(nodeid.partition("::")[0]).stem.removeprefix("test_").replace("_", " ")
