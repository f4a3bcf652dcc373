"""The line at the top: where one is, who answers, how far they are trusted, and how full the model's context is."""

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from toolcrib.cli.terminal.story import Usage

_BAR = 8


@dataclass(frozen=True, slots=True)
class Standing:
    """What the line says."""

    where: str
    agent: str
    model: str
    mode: str
    trust: str
    usage: Usage
    doing: str


def status_line(standing: Standing, width: int) -> str:
    """As much as fits, the more telling first: what is going on stands at the right and is never cut."""
    right = f" {standing.doing}  {standing.mode} · {standing.trust} · {gauge(standing.usage)} "
    room = max(0, width - cell_len(right))
    lefts = [f" {standing.where} · {standing.agent} · {standing.model}", f" {standing.where} · {standing.agent}"]
    left = next((one for one in lefts if cell_len(one) <= room), None)
    if left is None:
        # A path says most at its end.
        left = f" …{lefts[-1][max(0, len(lefts[-1]) - room + 2) :]}" if room > _BAR else ""
    return set_cell_size(left, room) + right


def gauge(usage: Usage) -> str:
    """Tokens, and how much of the window they are where that is known."""
    if not usage.window:
        return f"{_short(usage.tokens)} tokens"
    part = min(1.0, usage.tokens / usage.window)
    full = round(part * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {part:.0%} of {_short(usage.window)}"


def _short(number: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            return f"{number / size:.0f}{unit}"
    return str(number)
