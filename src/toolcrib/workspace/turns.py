"""In which order what moves can be renamed, so that nothing is put where it is taken along. Touches no disk."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from toolcrib.domain.places import Place


class Turns:
    """What one set moves from where to where. ``folders``: which of it are folders, by where they come from."""

    def __init__(self, goals: Mapping[Place, Place], folders: Collection[Place]) -> None:
        self._goals = goals
        self._folders = folders
        self._carriers: dict[Place, Place] = {}
        self._leaving: dict[Place, list[Place]] = defaultdict(list)
        for place, goal in goals.items():
            above = [folder for folder in place.ancestors if folder in goals]
            if above and goal == place.moved(above[-1], goals[above[-1]]):
                self._carriers[place] = above[-1]
                continue
            for folder in above:
                self._leaving[folder].append(place)

    def carrier(self, place: Place) -> Place | None:
        """The folder that takes it where it goes, if one does."""
        return self._carriers.get(place)

    def leaving(self, folder: Place) -> Collection[Place]:
        """What leaves a folder for somewhere else than the folder takes it."""
        return self._leaving.get(folder, ())

    def __iter__(self) -> Iterator[Place]:
        """Each after what it waits for. Folders that wait for each other have no turn, and files that do the last."""
        waits = {place: self._waits_for(place) for place in self._goals}
        last: list[Place] = []
        while waits:
            sorter, cycle = TopologicalSorter(waits), set[Place]()
            try:
                sorter.prepare()
            except CycleError as error:
                cycle.update(error.args[1])
            while ready := sorter.get_ready():
                yield from ready
                sorter.done(*ready)
                for place in ready:
                    del waits[place]
            # Nothing goes into a file, and who wants its place does not find it free: files make nobody wait.
            last += [place for place in waits if place not in self._folders]
            waits = {
                place: {other for other in others if other in waits and other in self._folders} - cycle
                for place, others in waits.items()
                if place in self._folders and place not in cycle
            }
        yield from last

    def _waits_for(self, place: Place) -> set[Place]:
        """What stands where it goes or would take it along from there, what takes it along, and what must not come."""
        goal = self._goals[place]
        waits = {above for above in (*goal.ancestors, goal) if above in self._goals}
        waits.update(self.leaving(place))
        if place in self._carriers:
            waits.add(self._carriers[place])
        return waits
