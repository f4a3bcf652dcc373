"""The review of what a session's agent changed: what is open, by file and by hunk, and the draft of a decision.

A review is computed from the history. Stored is only up to which version a person has decided about each file.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from typing import Final, Literal

from toolcrib.core.change_sets import ChangeKind
from toolcrib.core.errors import BadArguments, BaseChanged, Conflict, TooCostly, WorkerFailed
from toolcrib.core.files import EntryKind, Version
from toolcrib.core.ids import FileId, SessionId
from toolcrib.core.paths import Mount, WorkspacePath, folders_above
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.file_history import FileTimeline, ReviewedFile, UnreviewedChanges
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.changes.undo_plan import changed_since, draft_undo, plan_undo, reversal_of
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.fs.gitignore import GitignoreRules, read_rules
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.hunks import Hunk, Step
from toolcrib.workspace.text.worker_calls import hunks_of, hunks_reverted
from toolcrib.workspace.tree import WorkspaceTree

# A file beyond this can be reviewed by hunk, and not be edited in the review.
MOST_BYTES: Final = 200_000
_GIT: Final = ".git"
# What git only reads: objects, references, and what names or describes commits. Anything else is shown with its lines:
# hooks, configuration and the steps of a rebase run programs, and no list of all such files is complete.
GIT_DATA: Final = re.compile(
    r"(?:^|/)(?:objects/(?!info/)|refs/|logs/)"
    r"|^(?:(?:modules|worktrees)/.+/)?(?:[A-Z]+_HEAD|HEAD|index|packed-refs|shallow|description"
    r"|COMMIT_EDITMSG|MERGE_MSG|MERGE_MODE|SQUASH_MSG|AUTO_MERGE)$"
)

Group = Literal["git", "ignored"]


@dataclass(frozen=True, slots=True)
class ReviewEntry:
    """What a person keeps or reverts: a file, a git directory, or a folder that git ignores.

    ``timelines`` are the files that it has. A path has several if a file was deleted there and made again.
    """

    path: WorkspacePath
    group: Group | None
    timelines: tuple[FileTimeline, ...]

    @property
    def version(self) -> str:
        """A hash of what the entry shows. It changes with every change of its files."""
        shown = sorted((str(one.file.id), str(one.versions[0].id), str(one.file.version_id)) for one in self.timelines)
        return sha256(repr(shown).encode()).hexdigest()[:16]

    @property
    def before(self) -> Version | None:
        """The version before the first change, if there was a file."""
        return next((found for one in self.timelines if (found := reversal_of(one).version)), None)

    @property
    def after(self) -> Version | None:
        """The current version, if the file exists."""
        return next((one.versions[-1] for one in self.timelines if not one.file.deleted), None)

    @property
    def uncommon(self) -> tuple["ReviewEntry", ...]:
        """The files of a git directory that are not git's data: what may run code when git is used. By path."""
        if self.group != "git":
            return ()
        prefix = len(self.path.path) + 1
        found = [
            one
            for one in self.timelines
            if one.file.state.kind is not EntryKind.FOLDER and not GIT_DATA.search(one.file.state.path.path[prefix:])
        ]
        return tuple(
            ReviewEntry(one.file.state.path, None, (one,))
            for one in sorted(found, key=lambda one: one.file.state.path.path)
        )

    @property
    def has_expired(self) -> bool:
        """Whether retention deleted what was there before."""
        return any(one.versions[0].id in one.ours and one.versions[0].version_number > 1 for one in self.timelines)

    @property
    def was_changed_by_others(self) -> bool:
        return any(changed_since(one) is not None for one in self.timelines)

    @property
    def versions_of_others(self) -> tuple[Version, ...]:
        """What others wrote since the agent's first change, oldest first."""
        found: list[Version] = []
        for one in self.timelines:
            if changed_since(one) is not None:
                first = next(at for at, version in enumerate(one.versions) if version.id in one.ours)
                found += [version for version in one.versions[first:] if version.id not in one.ours]
        return tuple(found)

    @property
    def change(self) -> ChangeKind:
        before, after = self.before, self.after
        if after is None:
            return ChangeKind.DELETED
        if before is None and not self.has_expired:
            return ChangeKind.CREATED
        return ChangeKind.MOVED if before and before.state.path != after.state.path else ChangeKind.MODIFIED


# Without slots: a thousand decisions look up a thousand entries.
@dataclass(frozen=True)
class Review:
    """The open changes of a session's agent."""

    entries: tuple[ReviewEntry, ...]
    # Folders above the entries. They follow what is decided about their content.
    folders: tuple[FileTimeline, ...]
    reviewed: Mapping[FileId, ReviewedFile]

    @cached_property
    def version(self) -> str:
        """A hash of everything that is shown."""
        return sha256(repr([(one.path.display, one.version) for one in self.entries]).encode()).hexdigest()[:16]

    def entry(self, path: WorkspacePath, version: str) -> ReviewEntry:
        """Return the entry as a person saw it. Raises ``Conflict`` if it was decided about, or has changed since."""
        found = self.at(path)
        if found is None:
            raise self._gone(path.display, [one for one in self.reviewed.values() if one.path.path == path.path])
        if found.version != version:
            raise Conflict(f"{path.display} changed since it was shown. Nothing was done; look at the review again.")
        return found

    def at(self, path: WorkspacePath) -> ReviewEntry | None:
        """Return the entry at a path, if there is one."""
        return self._by_path.get((path.mount, path.path))

    @cached_property
    def _by_path(self) -> dict[tuple[Mount, str], ReviewEntry]:
        # Of several at a path, the first counts, as it does on the page.
        return {(one.path.mount, one.path.path): one for one in reversed(self.entries)}

    def version_shown(self, unshown: Collection[str] = (), left_out: int = 0) -> str:
        """Return the version of a review in which these files could not be shown, and so many were not listed.

        A decision about everything must repeat it, and so name what the person has not seen.
        """
        if not unshown and not left_out:
            return self.version
        return f"{self.version}-{sha256(repr((sorted(unshown), left_out)).encode()).hexdigest()[:8]}"

    def require(self, version: str) -> None:
        """Raise ``Conflict`` unless this is the review as a person saw it, or as much of it as was shown."""
        if self.version == version.partition("-")[0]:
            return
        if not self.entries:
            raise self._gone("The review", list(self.reviewed.values()))
        raise Conflict("The review changed since it was shown. Nothing was done; look at it again.")

    def require_seen(self, version: str, unshown: Collection[str], left_out: int) -> None:
        """Raise ``Conflict`` unless this is the review as a person saw it, and all else is named."""
        self.require(version)
        if version != self.version_shown(unshown, left_out):
            raise Conflict(
                "Some files of this review could not be shown or were not listed. Nothing was done. Keep each file by "
                "itself, or name the others with `unshown` and `left_out`, as the review does."
            )

    def _gone(self, what: str, decided: Sequence[ReviewedFile]) -> Conflict:
        if not decided:
            return Conflict(f"{what} has no changes that wait for a review. Nothing was done.")
        last = max(decided, key=lambda one: one.decided_at)
        return Conflict(
            f"{what} was already decided: {last.decision} by {last.decided_by} at {last.decided_at:%H:%M:%S} UTC. "
            "Nothing was done."
        )


async def load_review(tree: WorkspaceTree, session_id: SessionId) -> Review:
    """Compute what waits for a review in a session. Files that are as they were before are left out."""
    found = await FileHistory(tree).unreviewed(session_id)
    disks = await tree.disks()
    return await in_thread(_grouped, found, disks)


def _grouped(found: UnreviewedChanges, disks: WorkspaceDisks) -> Review:
    rules = GitignoreRules(partial(read_rules, disks))
    grouped: dict[tuple[WorkspacePath, Group | None], list[FileTimeline]] = {}
    folders: list[FileTimeline] = []
    for timeline in found.timelines:
        if reversal_of(timeline).is_idle:
            continue
        path = timeline.file.state.path
        key = _git_directory(path) or _ignored_folder(timeline, rules)
        if key is not None:
            grouped.setdefault(key, []).append(timeline)
        elif timeline.file.state.kind is EntryKind.FOLDER:
            folders.append(timeline)
        else:
            grouped.setdefault((path, None), []).append(timeline)
    above = folders_above([*(path for path, _ in grouped), *(one.file.state.path for one in folders)])
    for timeline in folders:
        # A folder without changes inside is an entry of its own.
        if timeline.file.state.path not in above:
            grouped.setdefault((timeline.file.state.path, None), []).append(timeline)
    entries = [ReviewEntry(path, group, tuple(of)) for (path, group), of in grouped.items()]
    entries.sort(key=lambda one: (one.group is not None, one.path.display))
    inside = tuple(one for one in folders if one.file.state.path in above)
    review = Review(tuple(entries), inside, found.reviewed)
    # Computed here, in a thread.
    _ = review.version
    return review


def _git_directory(path: WorkspacePath) -> tuple[WorkspacePath, Group] | None:
    found = next((one for one in (*path.ancestors, path) if one.name == _GIT), None)
    return None if found is None else (found, "git")


def _ignored_folder(timeline: FileTimeline, rules: GitignoreRules) -> tuple[WorkspacePath, Group] | None:
    """Return the topmost ignored folder that a file is in, if the history does not keep its content."""
    before = reversal_of(timeline).state
    if not timeline.file.state.is_untracked and not (before and before.is_untracked):
        return None
    path = timeline.file.state.path
    folders = (*path.ancestors, path) if timeline.file.state.kind is EntryKind.FOLDER else path.ancestors
    found = next((folder for folder in folders if rules.ignores(folder, folder=True)), None)
    return None if found is None else (found, "ignored")


@dataclass(frozen=True, slots=True)
class TextSides:
    """Both contents of a changed text file, and the versions in between if others wrote some."""

    before: bytes
    after: bytes
    steps: tuple[Step, ...]


async def text_sides(tree: WorkspaceTree, entry: ReviewEntry) -> TextSides | None:
    """Return the contents that an entry changes; ``None`` if they are no text, or the history does not have them."""
    if entry.group is not None or entry.has_expired:
        return None
    old, new = [await _text(tree, version) for version in (entry.before, entry.after)]
    if old is None or new is None or old == new:
        return None
    steps: list[Step] = []
    if entry.was_changed_by_others:
        if len(entry.timelines) != 1:
            return None
        [timeline] = entry.timelines
        for version, is_ours in _turns(timeline):
            body = await _text(tree, None if version.deleted else version)
            if body is None:
                return None
            steps.append((body, is_ours))
    return TextSides(old, new, tuple(steps))


@dataclass(frozen=True, slots=True)
class TextChange:
    """The change of a text file, and its hunks."""

    sides: TextSides
    hunks: tuple[Hunk, ...]


async def text_change(tree: WorkspaceTree, entry: ReviewEntry) -> TextChange | None:
    """Return the hunks of an entry; ``None`` if it has no text. Raises ``TooCostly`` or ``WorkerFailed``."""
    sides = await text_sides(tree, entry)
    if sides is None:
        return None
    return TextChange(sides, tuple(await hunks_of(sides.before, sides.after, sides.steps)))


async def _text(tree: WorkspaceTree, version: Version | None) -> bytes | None:
    """Return the content of a version, ``b""`` for no file, and ``None`` if it has no lines."""
    if version is None:
        return b""
    state = version.state
    if state.kind is not EntryKind.FILE or state.sha256 is None:
        return None
    body = await FileHistory(tree).body(version)
    return None if is_binary(body) else body


def _turns(timeline: FileTimeline) -> list[tuple[Version, bool]]:
    """Return the last version of each stretch by the agent or by others, since the agent's first one."""
    turns: list[tuple[Version, bool]] = []
    for version in timeline.versions:
        is_ours = version.id in timeline.ours
        if not turns and not is_ours:
            continue
        if turns and turns[-1][1] == is_ours:
            turns.pop()
        turns.append((version, is_ours))
    return turns


@dataclass(frozen=True, slots=True)
class ReviewDecision:
    """Keep an entry, revert it, or edit it.

    With ``hunks``, only these are reverted, and the others are kept. With ``content``, the file gets this content as a
    version of the person, and stays open.
    """

    entry: ReviewEntry
    reverts: bool
    hunks: frozenset[str] = frozenset()
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class RevertedEntry:
    """An entry that is reverted. ``hunks`` are how many, and of how many, if not as a whole."""

    entry: ReviewEntry
    hunks: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class EditedEntry:
    """An entry that a person edited. ``before`` is the content that the person saw."""

    entry: ReviewEntry
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class ReviewedVersion:
    """Up to which version a file is reviewed now, and up to which it was before."""

    file_id: FileId
    version_number: int
    expected: int
    decision: Literal["kept", "reverted"]


@dataclass(frozen=True, slots=True)
class DraftedReview:
    """What a decision did. Entries with a conflict stay as they are, and open."""

    kept: tuple[ReviewEntry, ...]
    reverted: tuple[RevertedEntry, ...]
    edited: tuple[EditedEntry, ...]
    conflicts: tuple[tuple[ReviewEntry, str], ...]
    versions: tuple[ReviewedVersion, ...]
    open: int


async def draft_review(
    tree: WorkspaceTree, draft: Draft, review: Review, decisions: Sequence[ReviewDecision]
) -> DraftedReview:
    """Add the reverts and edits to the draft: whole files as an undo of them, the others as a new content."""
    edited = [await _edited(tree, one.entry, one.content) for one in decisions if one.content is not None]
    kept = [one.entry for one in decisions if not one.reverts and one.content is None]
    whole: list[RevertedEntry] = []
    reverted: list[RevertedEntry] = []
    conflicts: list[tuple[ReviewEntry, str]] = []
    rewritten: list[tuple[ReviewEntry, bytes]] = []
    for decision in (one for one in decisions if one.reverts):
        if not decision.hunks and not decision.entry.was_changed_by_others:
            # Needs no comparison, so it works where that fails.
            whole.append(RevertedEntry(decision.entry))
            continue
        try:
            change = await text_change(tree, decision.entry)
        except (TooCostly, WorkerFailed) as error:
            conflicts.append((decision.entry, f"Its changes could not be told apart. {error.message}"))
            continue
        chosen = _chosen(decision, change)
        if change is None or (len(chosen) == len(change.hunks) and not change.sides.steps):
            whole.append(RevertedEntry(decision.entry))
        elif any(hunk.author == "both" for hunk in chosen):
            conflicts.append((decision.entry, "Someone else changed the same lines."))
        else:
            sides = change.sides
            body = await hunks_reverted(sides.before, sides.after, [one.id for one in chosen], sides.steps)
            rewritten.append((decision.entry, body))
            reverted.append(RevertedEntry(decision.entry, (len(chosen), len(change.hunks))))
    if whole:
        refused = await _draft_whole(tree, draft, review, [one.entry for one in whole])
        conflicts += [(one.entry, refused[one.entry.path]) for one in whole if one.entry.path in refused]
        reverted += [one for one in whole if one.entry.path not in refused]
    for entry, body in (*rewritten, *((one.entry, one.after) for one in edited)):
        await _rewrite(draft, entry, body)
    versions = _versions(review, draft, kept, [one.entry for one in reverted])
    left = len(review.entries) - len(kept) - len(reverted)
    return DraftedReview(tuple(kept), tuple(reverted), tuple(edited), tuple(conflicts), versions, left)


async def _edited(tree: WorkspaceTree, entry: ReviewEntry, content: bytes) -> EditedEntry:
    before = None if entry.group is not None or entry.after is None else await _text(tree, entry.after)
    if before is None or len(before) > MOST_BYTES:
        raise BadArguments({"content": f"{entry.path.display} is not text of at most {MOST_BYTES:,} bytes."})
    if len(content) > MOST_BYTES or is_binary(content):
        raise BadArguments({"content": f"The new content must be text of at most {MOST_BYTES:,} bytes."})
    return EditedEntry(entry, before, content)


def _chosen(decision: ReviewDecision, change: TextChange | None) -> list[Hunk]:
    """Return the hunks to revert: those named, or all that have changes of the agent."""
    known = {hunk.id for hunk in change.hunks} if change else set()
    if unknown := decision.hunks - known:
        raise BadArguments({"hunks": f"{decision.entry.path.display} has no hunk {min(unknown)}."})
    if change is None:
        return []
    if any(hunk.id in decision.hunks and hunk.author == "others" for hunk in change.hunks):
        raise BadArguments({"hunks": f"A hunk of {decision.entry.path.display} is not the agent's change."})
    return [h for h in change.hunks if (h.id in decision.hunks if decision.hunks else h.author != "others")]


async def _draft_whole(
    tree: WorkspaceTree, draft: Draft, review: Review, entries: Sequence[ReviewEntry]
) -> dict[WorkspacePath, str]:
    """Draft the revert of whole entries. Returns the reasons of those that cannot be reverted."""
    timelines = [one for entry in entries for one in entry.timelines]
    paths = {path for one in timelines for path in _paths(one)}
    above = {folder for path in paths for folder in path.ancestors}
    folders = [one for one in review.folders if not above.isdisjoint(_paths(one))]
    plan = await plan_undo(tree, [*timelines, *folders], force=False)
    await draft_undo(tree, draft, plan)
    refused = {clash.file.id: clash.reason for clash in plan.clashes}
    return {
        entry.path: next(refused[one.file.id] for one in entry.timelines if one.file.id in refused)
        for entry in entries
        if any(one.file.id in refused for one in entry.timelines)
    }


def _paths(timeline: FileTimeline) -> set[WorkspacePath]:
    before = reversal_of(timeline).state
    return {timeline.file.state.path} | ({before.path} if before else set())


async def _rewrite(draft: Draft, entry: ReviewEntry, body: bytes) -> None:
    path_state = await draft.lookup(entry.path)
    after = entry.after
    if after is None or path_state.file is None or path_state.file.version_id != after.id:
        raise BaseChanged(f"{entry.path.display} changed just now.")
    await draft.write(path_state, body, content=after.state.content_kind)


def _versions(
    review: Review, draft: Draft, kept: Collection[ReviewEntry], reverted: Collection[ReviewEntry]
) -> tuple[ReviewedVersion, ...]:
    """Return up to which version each decided file is reviewed: its head, or the one that the draft makes."""
    decided = {one.path for one in (*kept, *reverted)}
    still_open = {above for one in review.entries if one.path not in decided for above in one.path.ancestors}
    found: list[ReviewedVersion] = []

    def add(timeline: FileTimeline, decision: Literal["kept", "reverted"]) -> None:
        file = timeline.file
        before = review.reviewed.get(file.id)
        number = file.version_number + (file.id in draft.changes)
        found.append(ReviewedVersion(file.id, number, before.version_number if before else 0, decision))

    for entries, decision in ((kept, "kept"), (reverted, "reverted")):
        for entry in entries:
            for timeline in entry.timelines:
                add(timeline, "kept" if decision == "kept" else "reverted")
    for timeline in review.folders:
        if timeline.file.state.path not in still_open:
            add(timeline, "reverted" if timeline.file.id in draft.changes else "kept")
    return tuple(found)
