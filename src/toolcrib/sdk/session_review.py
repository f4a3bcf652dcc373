"""The review of what a session's agent changed, for programs: look at the files and hunks, keep or revert them."""

from collections.abc import Iterable
from uuid import UUID

from toolcrib.client import Client, FileDecisionIn, ReviewDecisionOut, ReviewFileOut, ReviewOut
from toolcrib.core.errors import NotFound


class SessionReview:
    """What the agent changed since the last review. A decision is valid only for what this shows.

    Attributes:
        files: The changed files with their hunks; ``hunk.diff`` is the text and ``hunk.id`` names it.
    """

    def __init__(self, client: Client, workspace_id: UUID, shown: ReviewOut) -> None:
        self._client = client
        self._workspace_id = workspace_id
        self._shown = shown
        self.files = shown.files

    def __len__(self) -> int:
        return self._shown.total

    def keep(self, paths: Iterable[str] = ()) -> ReviewDecisionOut:
        """Keep these files, or everything."""
        named = [FileDecisionIn(path=one.path, version=one.version, decision="keep") for one in map(self._file, paths)]
        if named:
            return self._client.decide_review(self._workspace_id, self._shown, named)
        return self._client.decide_review(self._workspace_id, self._shown, everything="keep")

    def revert(self, paths: Iterable[str] = (), *, hunks: Iterable[str] = ()) -> ReviewDecisionOut:
        """Revert these files and hunks, or everything. Of a file with reverted hunks, the other hunks are kept.

        Returns:
            What was done. Its ``conflicts`` are files that someone else has changed in the same lines; they stay.
        """
        decisions = [
            FileDecisionIn(path=one.path, version=one.version, decision="revert") for one in map(self._file, paths)
        ]
        chosen: dict[str, list[str]] = {}
        for hunk in hunks:
            chosen.setdefault(self._file_of(hunk).path, []).append(hunk)
        decisions += [
            FileDecisionIn(path=path, version=self._file(path).version, decision="revert", hunks=ids)
            for path, ids in chosen.items()
        ]
        if decisions:
            return self._client.decide_review(self._workspace_id, self._shown, decisions)
        return self._client.decide_review(self._workspace_id, self._shown, everything="revert")

    def _file(self, path: str) -> ReviewFileOut:
        for one in self.files:
            if one.path.lstrip("/") == path.lstrip("/"):
                return one
        raise NotFound(f"{path} has no changes that wait for a review.")

    def _file_of(self, hunk: str) -> ReviewFileOut:
        for one in self.files:
            if any(known.id == hunk for known in one.hunks):
                return one
        raise NotFound(f"The review has no hunk {hunk!r}.")
