"""Plans the undo inside git repositories. Git's files depend on each other, so they are not reverted one by one.

Objects are never removed. A ref returns to its value if it still has the one that the calls gave it, wherever git keeps
it now. HEAD, the index and the state of a merge or rebase return together, or not at all. A reflog follows its ref,
unless someone has added to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final, Self

from toolcrib.core.errors import Conflict, ToolcribError
from toolcrib.core.files import EntryKind, Version
from toolcrib.core.ids import FileId, VersionId
from toolcrib.core.paths import WorkspacePath
from toolcrib.runtime.disk_threads import in_thread, off_loop
from toolcrib.storage.file_history import FileTimeline
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.fs.git_files import (
    GitDirectory,
    PackedRef,
    branch_of,
    index_entries,
    is_object_id,
    packed_refs_text,
    parse_packed_refs,
    ref_value,
)
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.tree import WorkspaceTree

_HEAD, _INDEX, _PACKED, _STASH = "HEAD", "index", "packed-refs", "refs/stash"
# What says which commit is checked out, what is staged, and which merge or rebase is in progress.
_CHECKOUT: Final = frozenset(
    f"{_HEAD} {_INDEX} MERGE_HEAD MERGE_MODE MERGE_MSG MERGE_RR AUTO_MERGE SQUASH_MSG REBASE_HEAD CHERRY_PICK_HEAD "
    "REVERT_HEAD rebase-merge rebase-apply sequencer refs".split()
)
# Notes of the last command, and what git derives from refs for a web server, which nobody misses.
_NOTES: Final = frozenset(("FETCH_HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "gc.log", "gc.pid", "info/refs"))
# Names that a path in a git directory may have just below it.
_TOP: Final = _CHECKOUT.union(
    _NOTES, f"{_PACKED} objects logs config worktrees modules hooks info description branches shallow rr-cache".split()
)


# A value that nothing tells any more.
_UNKNOWN: Final = "?"


@dataclass(frozen=True, slots=True)
class RepositoryUndo:
    """What to do in one repository: the files to revert, and those that stay."""

    revert: tuple[FileTimeline, ...] = ()
    # With the reason, which is None if nobody needs to know.
    stay: tuple[tuple[FileTimeline, str | None], ...] = ()
    # New contents, by path.
    rewrite: Mapping[WorkspacePath, bytes] = field(default_factory=dict)

    def refuses(self, refused: Collection[FileId]) -> bool:
        """Whether one of its values cannot be reverted. Then all stay, because they depend on each other."""
        return any(history.file.id in refused for history in self.revert if not is_optional(history))


def is_optional(history: FileTimeline) -> bool:
    """Whether a repository stays whole when this is not reverted: a folder or an object."""
    return history.file.state.kind is EntryKind.FOLDER or "objects" in history.file.state.path.parts


async def plan_git_undo(
    tree: WorkspaceTree, histories: Sequence[FileTimeline]
) -> tuple[list[RepositoryUndo], list[FileTimeline]]:
    """Plan the undo in each repository. Also returns the timelines that are in none.

    Raises:
        Conflict: A git command is running in one of them.
    """
    disks = await tree.disks()
    repositories = await in_thread(_by_repository, disks, histories)
    plans = [await _planned(tree, disks, root, of) for root, of in repositories.items()]
    inside = {history.file.id for of in repositories.values() for history in of}
    if not inside:
        return plans, list(histories)
    return plans, await off_loop(histories, lambda: [one for one in histories if one.file.id not in inside])


def _by_repository(disks: WorkspaceDisks, histories: Iterable[FileTimeline]) -> dict[WorkspacePath, list[FileTimeline]]:
    """Group timelines by the git directory that they are in now, the innermost one."""
    known: dict[WorkspacePath, bool] = {}

    def is_git_directory(folder: WorkspacePath) -> bool:
        if folder not in known:
            try:
                entries = [disks(folder).stat(folder.child(name)) for name in (_HEAD, "objects", "refs")]
            except ToolcribError:
                # Behind a link, for example.
                entries = []
            kinds = [entry.kind if entry else None for entry in entries]
            known[folder] = kinds == [EntryKind.FILE, EntryKind.FOLDER, EntryKind.FOLDER]
        return known[folder]

    found: dict[WorkspacePath, list[FileTimeline]] = {}
    for history in histories:
        path = history.file.state.path
        above = [*path.ancestors, path]
        if history.file.state.kind is EntryKind.FOLDER:
            above.append(path.child(_HEAD))
        for folder, below in zip(reversed(above[:-1]), reversed(above[1:]), strict=True):
            if (folder.name == ".git" or below.name in _TOP) and is_git_directory(folder):
                found.setdefault(folder, []).append(history)
                break
    return found


async def _planned(
    tree: WorkspaceTree, disks: WorkspaceDisks, root: WorkspacePath, histories: Sequence[FileTimeline]
) -> RepositoryUndo:
    expired = [history for history in histories if _is_expired(history)]
    if any(not is_optional(history) for history in expired):
        return RepositoryUndo(stay=tuple((history, "The previous version has expired.") for history in expired))
    values = [history for history in histories if not _name_in(root, history).startswith("objects/")]
    versions = [v for h in values for v in h.versions[: h.versions.index(_last_of_ours(h)) + 1]]
    contents = await FileHistory(tree).bodies(versions)
    bodies = {v.id: contents[v.state.sha256] for v in versions if v.state.sha256 is not None}
    return await in_thread(lambda: _Repository(GitDirectory(disks(root), root), histories, bodies).plan())


@dataclass(frozen=True, slots=True)
class _GitFile:
    """What happened at one name in a git directory. A file that was deleted and made again has several timelines."""

    histories: tuple[FileTimeline, ...]
    # From before the first of the calls to now, oldest first.
    versions: tuple[Version, ...]
    ours: frozenset[VersionId]

    @classmethod
    def of(cls, histories: Sequence[FileTimeline]) -> Self:
        """Join the timelines of one name."""
        versions = sorted((v for history in histories for v in history.versions), key=lambda version: version.id)
        if len(histories) > 1:
            # A change set that replaces one file by another deletes the one before it creates the other.
            started = {version.change_set_id: version.id for version in reversed(versions)}
            versions.sort(key=lambda version: (started[version.change_set_id], not version.deleted, version.id))
        return cls(tuple(histories), tuple(versions), frozenset().union(*(history.ours for history in histories)))

    @property
    def before(self) -> Version | None:
        """The version before the first of the calls, or None if there was no file."""
        first = next(number for number, version in enumerate(self.versions) if version.id in self.ours)
        return None if first == 0 or self.versions[first - 1].deleted else self.versions[first - 1]

    @property
    def last(self) -> Version:
        """The last version by the calls."""
        return next(version for version in reversed(self.versions) if version.id in self.ours)

    @property
    def is_gone(self) -> bool:
        return all(history.file.deleted for history in self.histories)


@dataclass(frozen=True, slots=True)
class _RefChange:
    """A ref that the calls changed: its values before, after them, and now."""

    name: str
    before: str | None
    after: str | None
    now: str | None
    # Its own file, if the calls changed that.
    file: _GitFile | None
    # Whether someone moved it between the calls.
    is_shared: bool

    @property
    def is_idle(self) -> bool:
        return self.now == self.before

    @property
    def is_moved(self) -> bool:
        return not self.is_idle and (self.is_shared or self.now != self.after or self.before == _UNKNOWN)


class _Repository:
    """Decides what to do in one git directory, from its files now and from what the calls did to them."""

    def __init__(self, git: GitDirectory, histories: Sequence[FileTimeline], bodies: Mapping[VersionId, bytes]) -> None:
        self._git = git
        self._all = histories
        self._bodies = bodies
        by_name: dict[str, list[FileTimeline]] = {}
        for history in histories:
            if history.file.state.kind is not EntryKind.FOLDER:
                by_name.setdefault(_name_in(git.root, history), []).append(history)
        self._files = {name: _GitFile.of(of) for name, of in by_name.items()}
        self._folders = [h for h in histories if h.file.state.kind is EntryKind.FOLDER]
        self._revert: list[FileTimeline] = []
        self._stay: list[tuple[FileTimeline, str | None]] = []
        self._packed_now = dict(git.packed)

    def plan(self) -> RepositoryUndo:
        self._reject_locks()
        head = self._files.get(_HEAD)
        if head is not None and head.before is None:
            return self._plan_own()
        if self._git.exists("reftable"):
            return self._plan_opaque()
        stuck = {prefix for prefix in self._git.checkouts() if self._is_used_since(prefix)}
        self._plan_refs(stuck)
        for name, file in self._files.items():
            self._plan_file(name, file, stuck)
        self._plan_folders(stuck)
        return RepositoryUndo(tuple(self._revert), tuple(self._stay), self._packed_edit())

    def _reject_locks(self) -> None:
        for name in (_INDEX, _HEAD, _PACKED, *(ref.name for ref in self._refs.values())):
            if self._git.exists(f"{name}.lock"):
                raise Conflict(
                    f"A git command is running: {self._git.path(name).display}.lock exists. Nothing was undone. "
                    "Try again when it has ended. If no git command runs, remove that file."
                )

    def _plan_own(self) -> RepositoryUndo:
        """Remove a repository that the calls created, unless someone used it since."""
        known = {history.file.state.path for history in self._all}
        is_used = any(path not in known for path in self._git.names()) or not all(
            self._is_unmoved(name, file) for name, file in self._files.items() if not name.startswith("objects/")
        )
        if not is_used:
            return RepositoryUndo(revert=tuple(self._all))
        reason = "This repository was used since it was created, so it stays."
        first = self._files[_HEAD].histories[-1]
        others = [(history, None) for history in self._all if history is not first]
        return RepositoryUndo(stay=((first, reason), *others))

    def _plan_opaque(self) -> RepositoryUndo:
        """Revert all or nothing in a repository whose refs are in tables that only git reads."""
        values = {name: file for name, file in self._files.items() if not name.startswith("objects/")}
        if all(self._is_unmoved(*item) for item in values.items()):
            histories = [history for file in values.values() for history in file.histories]
            return RepositoryUndo(revert=(*histories, *self._folders))
        first = next(iter(values.values()))
        return RepositoryUndo(stay=((first.histories[-1], "This repository was used since, so it stays."),))

    # Refs.

    @cached_property
    def _refs(self) -> dict[str, _RefChange]:
        """The refs that the calls changed, by value: moving one between its file and packed-refs is no change."""
        packed = self._files.get(_PACKED)
        old = new = self._git.packed
        if packed is not None:
            old, new = (parse_packed_refs(self._body(v) or b"") for v in (packed.before, packed.last))
        names = {name for name in self._files if name.startswith("refs/")}
        names |= {name for name in {*old, *new} if old.get(name) != new.get(name)}
        found: dict[str, _RefChange] = {}
        for name in names:
            file = self._files.get(name)
            before, after = old.get(name), new.get(name)
            values = [before.value if before else None, after.value if after else None]
            if file is not None:
                loose = [ref_value(self._body(version)) for version in (file.before, file.last)]
                if packed is None and loose[0] is None and before is not None and before.value == loose[1]:
                    # Someone packed the refs since, so the old value is only in the log.
                    values[0] = self._logged_before(name)
                values = [own or shared for own, shared in zip(loose, values, strict=True)]
            shared = self._is_shared(name, file) or self._is_shared(name, packed)
            found[name] = _RefChange(name, values[0], values[1], self._git.value(name), file, shared)
        return {name: ref for name, ref in found.items() if ref.before != ref.after}

    def _logged_before(self, ref: str) -> str | None:
        """Return the value of a ref before the calls by its log: each line has the old value and the new one."""
        log = self._files.get(f"logs/{ref}")
        if log is None:
            return _UNKNOWN
        lines = (self._body(log.before) or b"").splitlines()
        value = lines[-1].split(b" ")[1:2] if lines else (self._body(log.last) or b"").split(b" ")[:1]
        text = value[0].decode("ascii", "replace") if value else ""
        if not is_object_id(text):
            return _UNKNOWN
        return text if text.strip("0") else None

    def _plan_refs(self, stuck: Collection[str]) -> None:
        held = {branch_of(ref_value(self._git.read(f"{prefix}{_HEAD}"))) for prefix in stuck}
        reasons = {ref.name: self._why_kept(ref, held) for ref in self._refs.values() if not ref.is_idle}
        # The calls moved a ref away from these commits, and it stays there. Only a ref of the calls may have them now.
        left = {self._refs[name].before: name for name, reason in reasons.items() if reason}
        for name, reason in reasons.items():
            ref = self._refs[name]
            commit = self._git.peeled(name, ref.now) if ref.now else None
            if reason is None and ref.before is None and commit in left:
                reason = f"{name} has the commit that {left[commit]} had before, so it stays."
            if reason:
                self._keep(self._files.get(name) or self._files.get(_PACKED), reason)
                continue
            self._set(ref)

    def _why_kept(self, ref: _RefChange, held: Collection[str | None]) -> str | None:
        if ref.is_moved or (ref.name == _STASH and not self._is_unmoved_at(f"logs/{_STASH}")):
            return f"{ref.name} has moved since, so it stays."
        if ref.name in held:
            return f"{ref.name} is checked out and was used since, so it stays."
        if is_object_id(ref.before) and not self._has_object(ref.before or ""):
            return f"The commit {(ref.before or '')[:12]} is no longer in the repository, so {ref.name} stays."
        if (ref.file is None or ref.file.is_gone) and self._git.loose(ref.name) is not None:
            return f"{ref.name} has moved since, so it stays."
        return None

    def _set(self, ref: _RefChange) -> None:
        """Set a ref back: its own file if the calls changed that, and its line in packed-refs."""
        loose = None
        if ref.file is not None:
            before = ref.file.before
            loose = ref_value(self._body(before))
            if before is not None or self._git.loose(ref.name) is not None:
                self._revert.extend(ref.file.histories)
        packed = self._packed_now.get(ref.name)
        if loose is None and ref.before != (packed.value if packed else None):
            self._packed_now.pop(ref.name, None)
            if ref.before is not None:
                self._packed_now[ref.name] = self._packed_before(ref.name, ref.before)
        log = self._files.get(f"logs/{ref.name}")
        if log is not None and self._git.read(f"logs/{ref.name}") == self._body(log.last):
            self._revert.extend(log.histories)

    def _packed_before(self, name: str, value: str) -> PackedRef:
        """Return the line that packed-refs had, with the commit of a tag."""
        packed = self._files.get(_PACKED)
        old = parse_packed_refs(self._body(packed.before) or b"") if packed else {}
        found = old.get(name)
        return found if found is not None and found.value == value else PackedRef(value)

    def _packed_edit(self) -> dict[WorkspacePath, bytes]:
        if self._packed_now == self._git.packed:
            return {}
        return {self._git.path(_PACKED): packed_refs_text(self._packed_now)}

    # Checkouts.

    def _is_used_since(self, prefix: str) -> bool:
        """Whether someone moved HEAD, the checked out branch or the index of a checkout after the calls."""
        changed = {name: h for name, h in self._files.items() if self._is_checkout(name, prefix)}
        now = branch_of(ref_value(self._git.read(f"{prefix}{_HEAD}")))
        head = self._files.get(f"{prefix}{_HEAD}")
        versions = (head.before, head.last) if head else ()
        branches = {now, *(branch_of(ref_value(self._body(version))) for version in versions)}
        refs = [self._refs[branch] for branch in branches if branch in self._refs]
        if not changed and not refs:
            return False
        if any(ref.is_moved for ref in refs) or not all(self._is_unmoved(*item) for item in changed.items()):
            return True
        detached = ref_value(self._body(head.before)) if head else None
        if is_object_id(detached) and not self._has_object(detached or ""):
            return True
        log = f"{prefix}logs/{_HEAD}"
        if log in self._files:
            return not self._is_unmoved_at(log)
        histories = [*changed.values(), *(ref.file for ref in refs if ref.file)]
        last = max((file.last.created_at for file in histories), default=None)
        # A garbage collection writes the log again, without a new entry.
        return last is not None and self._git.written_ns(log) > _nanoseconds(last) and self._logged_since(log, last)

    def _logged_since(self, log: str, moment: datetime) -> bool:
        """Whether the last entry of a reflog was made after a moment, which entries tell in seconds."""
        entry = (self._git.read(log) or b"").rstrip(b"\n").rpartition(b"\n")[2].partition(b"\t")[0]
        seconds = entry.split(b" ")[-2:-1]
        return not seconds or not seconds[0].isdigit() or int(seconds[0]) >= int(moment.timestamp())

    def _is_checkout(self, name: str, prefix: str) -> bool:
        if not name.startswith(prefix):
            return False
        top = name[len(prefix) :].partition("/")[0]
        return (top in _CHECKOUT and (bool(prefix) or top != "refs")) or top.startswith("BISECT_")

    def _plan_file(self, name: str, file: _GitFile, stuck: Collection[str]) -> None:
        """Plan a file that is neither a ref nor a reflog of one."""
        prefix = _prefix_of(name)
        top = name[len(prefix) :].partition("/")[0]
        if name == _PACKED or (not prefix and top == "refs"):
            return
        if top == "objects":
            # Restored if the calls deleted it. Nothing else in there is touched.
            if file.before is not None and not self._git.exists(name) and file.last.deleted:
                self._revert.extend(file.histories)
        elif self._is_checkout(name, prefix):
            if prefix not in stuck:
                self._revert.extend(file.histories)
            elif not self._is_before(name, file):
                what = "HEAD and the index stay" if name != f"{prefix}{_HEAD}" else "HEAD stays"
                self._keep(file, f"Git was used here since, so {what}." if top in (_HEAD, _INDEX) else None)
        elif self._is_new_checkout(prefix):
            if prefix not in stuck:
                self._revert.extend(file.histories)
        elif top == "logs":
            is_unmoved = self._git.read(name) == self._body(file.last)
            if name == f"{prefix}logs/{_HEAD}" and prefix not in stuck and is_unmoved:
                self._revert.extend(file.histories)
        else:
            if self._is_unmoved(name, file):
                self._revert.extend(file.histories)
            elif not self._is_before(name, file):
                self._keep(file, None if _NOTES & {top, name} else "Changed by someone else.")

    def _plan_folders(self, stuck: Collection[str]) -> None:
        """Folders go where nothing is left in them, and come back with their content."""
        for history in self._folders:
            name = _name_in(self._git.root, history)
            prefix = _prefix_of(f"{name}/")
            if name.startswith("objects") or (prefix in stuck and self._is_new_checkout(prefix)):
                continue
            self._revert.append(history)

    def _is_new_checkout(self, prefix: str) -> bool:
        head = self._files.get(f"{prefix}{_HEAD}")
        return bool(prefix) and head is not None and head.before is None

    # Files.

    def _is_unmoved_at(self, name: str) -> bool:
        file = self._files.get(name)
        return file is None or self._is_unmoved(name, file)

    def _is_unmoved(self, name: str, file: _GitFile) -> bool:
        """Whether a file is still as the calls left it. An index counts as unmoved if it stages the same."""
        return not self._is_shared(name, file) and self._is_like(name, file.last)

    def _is_shared(self, name: str, file: _GitFile | None) -> bool:
        """Whether someone changed a file, or a ref in packed-refs, between the calls."""
        if file is None:
            return False
        own = [number for number, version in enumerate(file.versions) if version.id in file.ours]
        others = [number for number in range(own[0] + 1, own[-1]) if number not in own]
        return any(
            not self._is_same(name, *file.versions[n - 1 : n + 1]) and not self._is_packing(name, file.versions[n])
            for n in others
        )

    def _is_packing(self, name: str, version: Version) -> bool:
        """Whether someone only packed a ref, which deletes its file: its log goes on with the calls' entries."""
        log = self._files.get(f"logs/{name}") if name.startswith("refs/") and version.deleted else None
        if log is None or self._is_shared(f"logs/{name}", log):
            return False
        own = [one.id for one in log.versions if one.id in log.ours]
        return own[0] < version.id < own[-1]

    def _is_same(self, name: str, one: Version, other: Version) -> bool:
        bodies = [self._body(one), self._body(other)]
        if one.state.path.name == _PACKED:
            records = [parse_packed_refs(body or b"").get(name) for body in bodies]
            return records[0] == records[1]
        return one.deleted == other.deleted and self._is_equal(name, *bodies)

    def _is_before(self, name: str, file: _GitFile) -> bool:
        return self._is_like(name, file.before)

    def _is_like(self, name: str, version: Version | None) -> bool:
        now, then = self._git.read(name), self._body(version)
        if version is not None and not version.deleted and then is None:
            # A link, or content that the file does not have.
            return False
        return self._is_equal(name, now, then)

    def _is_equal(self, name: str, one: bytes | None, other: bytes | None) -> bool:
        if one == other or one is None or other is None:
            return one == other
        if _is_log(name):
            # A garbage collection drops old entries. The newest tells whether the ref has moved.
            return one.splitlines()[-1:] == other.splitlines()[-1:]
        if name.rpartition("/")[2] != _INDEX:
            return False
        entries = index_entries(one, hash_bytes=self._git.hash_bytes)
        return entries is not None and entries == index_entries(other, hash_bytes=self._git.hash_bytes)

    def _has_object(self, oid: str) -> bool:
        loose = self._files.get(f"objects/{oid[:2]}/{oid[2:]}")
        return self._git.has_object(oid) or (loose is not None and loose.before is not None)

    def _body(self, version: Version | None) -> bytes | None:
        return self._bodies.get(version.id) if version is not None and not version.deleted else None

    def _keep(self, file: _GitFile | None, reason: str | None) -> None:
        if file is not None:
            self._stay.append((file.histories[-1], reason))


def _name_in(root: WorkspacePath, history: FileTimeline) -> str:
    return history.file.state.path.path[len(root.path.rstrip("/")) + 1 :]


def _is_log(name: str) -> bool:
    return name[len(_prefix_of(name)) :].startswith("logs/")


def _prefix_of(name: str) -> str:
    """Return the part of a name that leads to its checkout."""
    parts = name.split("/")
    return "/".join(parts[:2]) + "/" if parts[0] == "worktrees" and len(parts) > 2 else ""


def _is_expired(history: FileTimeline) -> bool:
    """Whether the version before the first of the calls is no longer in the history."""
    return history.versions[0].id in history.ours and history.versions[0].version_number > 1


def _last_of_ours(history: FileTimeline) -> Version:
    return next(version for version in reversed(history.versions) if version.id in history.ours)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000_000)
