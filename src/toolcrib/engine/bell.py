"""Rung when something was decided or submitted here: whoever carries things out need not wait for their next look."""

import asyncio


class Bell:
    """One bell, several ears. Missing a ring costs a moment, never anything else."""

    def __init__(self) -> None:
        self._ears: list[asyncio.Event] = []

    def ear(self) -> asyncio.Event:
        """An event that is set with every ring; whoever waits for it clears it."""
        ear = asyncio.Event()
        self._ears.append(ear)
        return ear

    def ring(self) -> None:
        for ear in self._ears:
            ear.set()
