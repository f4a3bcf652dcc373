"""Show what a session's agent changed since the last review, and keep, revert or edit it. For people."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.change_sets import ChangeKind
from toolcrib.core.errors import BadArguments, PermissionDenied
from toolcrib.core.files import AuthorKind, EntryKind, Version
from toolcrib.core.ids import SessionId
from toolcrib.core.paths import WorkspacePath, parse_path
from toolcrib.core.tool_calls import Danger
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.tools.tool_results import IdText, ToolResult
from toolcrib.workspace.changes.review import (
    MOST_BYTES,
    DraftedReview,
    EditedEntry,
    RevertedEntry,
    Review,
    ReviewDecision,
    ReviewEntry,
    draft_review,
    load_review,
    text_change,
)
from toolcrib.workspace.changes.undo_plan import reversal_of
from toolcrib.workspace.text.content import encode_content
from toolcrib.workspace.text.hunks import HunkAuthor
from toolcrib.workspace.text.text_diff import TextDiff
from toolcrib.workspace.text.worker_calls import all_compared

# How many files are listed, and how many characters of hunks are shown. Ask for one path to see the hunks of a file
# beyond that.
_MOST_FILES: Final = 1_000
_ROOM: Final = 500_000
# How many files the note to the model names.
_MOST_NAMED: Final = 20
# Characters of a person's edits that the note shows.
_NOTE_ROOM: Final = 20_000

ReviewKind = Literal["file", "folder", "link", "git", "ignored"]


class ReviewHunk(ToolResult):
    id: Annotated[str, Field(description="A hash of the hunk's position and lines.")]
    diff: Annotated[str, Field(description="The hunk in unified format, with its header.")]
    added: int
    removed: int
    author: Annotated[
        HunkAuthor,
        Field(description="`others`: not the agent's change, so it cannot be reverted here. `both`: the same lines."),
    ]


class OtherAuthor(ToolResult):
    kind: AuthorKind
    user_id: IdText | None
    agent_id: IdText | None


class ReviewFile(ToolResult):
    """A file that the agent changed; or a git directory or an ignored folder, each as one entry."""

    path: str
    from_path: Annotated[str | None, Field(description="Where it was before, if it was moved.")]
    change: ChangeKind
    kind: ReviewKind
    version: Annotated[str, Field(description="Names what is shown; a decision repeats it.")]
    files: Annotated[int, Field(description="How many files the entry has.")]
    mode: Annotated[list[str] | None, Field(description="The mode before and now, if it changed.", examples=[None])]
    size: int | None
    added: int | None
    removed: int | None
    hunks: list[ReviewHunk]
    note: Annotated[str | None, Field(description="Why there are no hunks, or what the entry summarizes.")]
    changed_by_others: Annotated[bool, Field(description="Someone else has changed it since the agent did.")]
    others: Annotated[list[OtherAuthor], Field(description="Who else has changed it since.")]


class ReviewResult(ToolResult):
    session_id: IdText
    version: Annotated[str, Field(description="Names everything that is shown; a decision about all repeats it.")]
    files: list[ReviewFile]
    total: int
    added: int
    removed: int


class ReviewArguments(ToolArguments):
    session_id: UUID = Field(description="Id of the session.")
    path: str | None = Field(default=None, max_length=5_000, description="Show only this file, whatever its size.")


@built_in("review", effects=no_effects, read_only=False)
async def review(arguments: ReviewArguments, context: ToolContext) -> ReviewResult:
    """Show what the agent of a session changed since the last review, by file and by hunk."""
    _reject_agents(context)
    found = await load_review(context.tree, SessionId(arguments.session_id))
    entries = found.entries
    if arguments.path is not None:
        path = parse_path(arguments.path)
        entries = tuple(one for one in entries if _is_at(one, path))
    files, room = [], _ROOM if arguments.path is None else None
    for entry in entries[:_MOST_FILES]:
        shown = await _review_file(entry, context, room)
        room = None if room is None else room - sum(len(hunk["diff"]) for hunk in shown["hunks"])
        files.append(shown)
    return {
        "session_id": str(arguments.session_id),
        "version": found.version,
        "files": files,
        "total": len(found.entries),
        "added": sum(one["added"] or 0 for one in files),
        "removed": sum(one["removed"] or 0 for one in files),
    }


class FileDecision(BaseModel):
    """Keep, revert or edit one file as it was shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(max_length=5_000, examples=["/src/parser.py"])
    version: str = Field(max_length=64, description="The `version` of the file that was shown.")
    decision: Literal["keep", "revert", "edit"]
    hunks: list[str] = Field(
        default=[], max_length=10_000, description="Revert only these hunks and keep the others. Empty: the whole file."
    )
    content: str | None = Field(
        default=None,
        max_length=MOST_BYTES,
        description="With `edit`: the whole new content, as your change. The file stays open.",
    )


class ReviewDecideArguments(ToolArguments):
    decisions: list[FileDecision] = Field(
        default=[], max_length=_MOST_FILES, description="What to keep and what to revert, by file and by hunk."
    )
    all: Literal["keep", "revert"] | None = Field(default=None, description="Keep or revert everything that was shown.")
    version: str | None = Field(default=None, max_length=64, description="With `all`: the `version` of the review.")

    @model_validator(mode="after")
    def _something_is_decided(self) -> Self:
        if bool(self.decisions) == (self.all is not None) or (self.all is None) != (self.version is None):
            raise PydanticCustomError("review_what", "Give either decisions, or all with the review's version")
        if any(one.hunks and one.decision != "revert" for one in self.decisions):
            raise PydanticCustomError("kept_hunks", "Name the hunks to revert; the others are kept")
        if any((one.content is None) == (one.decision == "edit") for one in self.decisions):
            raise PydanticCustomError("edit_content", "Give a content with `edit`, and only then")
        if len({one.path for one in self.decisions}) < len(self.decisions):
            raise PydanticCustomError("decided_twice", "Decide about each file once")
        return self


class RevertedInReview(ToolResult):
    path: str
    hunks: Annotated[int | None, Field(description="How many hunks were reverted; null for the whole file.")]
    of: Annotated[int | None, Field(description="Of how many.")]


class EditedInReview(ToolResult):
    path: str
    added: int | None
    removed: int | None


class ReviewConflict(ToolResult):
    path: str
    reason: str


class ReviewedVersionEntry(ToolResult):
    file_id: IdText
    version_number: int
    expected: int
    decision: Literal["kept", "reverted"]


class ReviewDecideResult(ToolResult):
    call_id: Annotated[IdText, Field(description="Undo this call to bring back what was there before.")]
    kept: list[str]
    reverted: list[RevertedInReview]
    edited: Annotated[
        list[EditedInReview], Field(description="Files with a new content by the person. They stay open.")
    ]
    conflicts: Annotated[list[ReviewConflict], Field(description="Files that stay as they are, and open.")]
    open: Annotated[int, Field(description="How many files still wait for a review.")]
    note: Annotated[str, Field(description="What the agent is told with the next message.")]
    reviewed: Annotated[list[ReviewedVersionEntry], Field(description="Up to which version each file is reviewed.")]


@built_in("review", danger=Danger.DANGEROUS, effects=no_effects, drafts=True)
async def review_decide(arguments: ReviewDecideArguments, context: ToolContext) -> ReviewDecideResult:
    """Keep, revert or edit what the agent of this session changed, as it was shown by `review`."""
    _reject_agents(context)
    session_id = context.caller.session_id
    if session_id is None:
        raise BadArguments({"session_id": "Name the session whose changes are reviewed."})
    found = await load_review(context.tree, session_id)
    done = await draft_review(context.tree, context.draft, found, _decisions(arguments, found))
    edits = await _compared(done.edited)
    return {
        "call_id": str(context.caller.call_id),
        "kept": [one.path.display for one in done.kept],
        "reverted": [
            {"path": one.entry.path.display, "hunks": one.hunks and one.hunks[0], "of": one.hunks and one.hunks[1]}
            for one in done.reverted
        ],
        "edited": [
            {"path": path, "added": diff and diff.added, "removed": diff and diff.removed} for path, diff in edits
        ],
        "conflicts": [{"path": entry.path.display, "reason": reason} for entry, reason in done.conflicts],
        "open": done.open,
        "note": _note(done, edits),
        "reviewed": [
            {
                "file_id": str(one.file_id),
                "version_number": one.version_number,
                "expected": one.expected,
                "decision": one.decision,
            }
            for one in done.versions
        ],
    }


def _reject_agents(context: ToolContext) -> None:
    if context.caller.is_agent:
        raise PermissionDenied("Only people review what agents changed. Ask the person to open the review.")


def _decisions(arguments: ReviewDecideArguments, found: Review) -> list[ReviewDecision]:
    if arguments.all is not None:
        assert arguments.version is not None
        found.require(arguments.version)
        return [ReviewDecision(entry, arguments.all == "revert") for entry in found.entries]
    return [
        ReviewDecision(
            found.entry(parse_path(one.path), one.version),
            one.decision == "revert",
            frozenset(one.hunks),
            None if one.content is None else encode_content(one.content)[0],
        )
        for one in arguments.decisions
    ]


async def _compared(edited: Sequence[EditedEntry]) -> list[tuple[str, TextDiff | None]]:
    paths = [one.entry.path.display for one in edited]
    pairs = [(one.before, one.after, (path, path)) for one, path in zip(edited, paths, strict=True)]
    return list(zip(paths, await all_compared(pairs, room=_NOTE_ROOM), strict=True))


def _is_at(entry: ReviewEntry, path: WorkspacePath) -> bool:
    return (entry.path.mount, entry.path.path) == (path.mount, path.path)


async def _review_file(entry: ReviewEntry, context: ToolContext, room: int | None) -> ReviewFile:
    before, after = entry.before, entry.after
    state = (after or before or entry.timelines[-1].versions[-1]).state
    shown: ReviewFile = {
        "path": entry.path.display,
        "from_path": before.state.path.display if before is not None and entry.change is ChangeKind.MOVED else None,
        "change": entry.change,
        "kind": entry.group or _KINDS[state.kind],
        "version": entry.version,
        "files": len(entry.timelines),
        "mode": None,
        "size": None if entry.group else state.size,
        "added": None,
        "removed": None,
        "hunks": [],
        "note": None,
        "changed_by_others": entry.was_changed_by_others,
        "others": _others(entry),
    }
    if entry.group is not None:
        note = await _git_note(entry, context) if entry.group == "git" else _ignored_note(entry)
        return {**shown, "note": note}
    if before is not None and after is not None and before.state.mode != after.state.mode:
        shown["mode"] = [f"{one.state.mode:04o}" for one in (before, after)]
    change = await text_change(context.tree, entry)
    if change is None:
        return {**shown, "note": _why_no_hunks(entry)}
    shown["added"] = sum(hunk.added for hunk in change.hunks)
    shown["removed"] = sum(hunk.removed for hunk in change.hunks)
    if room is not None and sum(len(hunk.text) for hunk in change.hunks) > room:
        return {**shown, "note": "Too long to be listed here. Show the file alone to see it."}
    shown["hunks"] = [
        {"id": one.id, "diff": one.text, "added": one.added, "removed": one.removed, "author": one.author}
        for one in change.hunks
    ]
    return shown


def _others(entry: ReviewEntry) -> list[OtherAuthor]:
    authors = dict.fromkeys((one.author_kind, one.user_id, one.agent_id) for one in entry.versions_of_others)
    return [
        {
            "kind": kind,
            "user_id": None if user_id is None else str(user_id),
            "agent_id": None if agent_id is None else str(agent_id),
        }
        for kind, user_id, agent_id in authors
    ]


_KINDS: Final[dict[EntryKind, ReviewKind]] = {
    EntryKind.FILE: "file",
    EntryKind.FOLDER: "folder",
    EntryKind.LINK: "link",
}


def _why_no_hunks(entry: ReviewEntry) -> str | None:
    versions = [one for one in (entry.before, entry.after) if one is not None]
    states = [one.state for one in versions]
    if entry.has_expired:
        return "The previous version has expired, so it cannot be reverted."
    if any(state.kind is EntryKind.LINK for state in states):
        return " → ".join(state.link_target or "" for state in states if state.kind is EntryKind.LINK)
    if any(state.is_untracked for state in states):
        return "Not kept in the history, because it is ignored or too large."
    if len(states) > 1 and len({state.sha256 for state in states}) == 1:
        return None
    if any(state.size > MOST_BYTES for state in states):
        return f"Too large to be compared: {max(state.size for state in states):,} bytes."
    return "Binary file." if any(state.content_kind == "binary" for state in states) else None


async def _git_note(entry: ReviewEntry, context: ToolContext) -> str:
    """Summarize what happened in a git directory: ``2 commits, index, 1 branch``."""
    prefix = len(entry.path.path) + 1
    names = {one.file.state.path.path[prefix:]: one for one in entry.timelines if one.file.state.kind is EntryKind.FILE}
    parts: list[str] = []
    if log := names.get("logs/HEAD"):
        earlier, now = [await _body(version, context) for version in (reversal_of(log).version, log.versions[-1])]
        commits = now.removeprefix(earlier).count(b"\tcommit")
        parts += [_counted(commits, "commit", "commits")] if commits else []
    branches = sum(name.startswith("refs/heads/") for name in names)
    tags = sum(name.startswith("refs/tags/") for name in names)
    parts += [_counted(branches, "branch", "branches")] if branches else []
    parts += [_counted(tags, "tag", "tags")] if tags else []
    parts += [name for name in ("HEAD", "index", "config") if name in names]
    objects = sum(name.startswith("objects/") for name in names)
    parts += [_counted(objects, "object", "objects")] if objects else []
    return "git: " + (", ".join(parts) or _counted(len(entry.timelines), "file", "files"))


async def _body(version: Version | None, context: ToolContext) -> bytes:
    return b"" if version is None or version.state.sha256 is None else await context.history.body(version)


def _ignored_note(entry: ReviewEntry) -> str:
    return f"Ignored by git: {_counted(len(entry.timelines), 'file or folder', 'files and folders')}"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _note(done: DraftedReview, edits: Sequence[tuple[str, TextDiff | None]]) -> str:
    """Return what the model is told: which of its changes stay, which are gone, and what the person wrote instead."""
    parts = []
    if done.kept:
        parts.append(f"kept {_named([one.path.display for one in done.kept])}")
    if done.reverted:
        parts.append(f"reverted {_named([_reverted(one) for one in done.reverted])}")
    if edits:
        parts.append(f"edited {_named([path for path, _ in edits])}")
    if done.conflicts:
        parts.append(f"not decided {_named([entry.path.display for entry, _ in done.conflicts])}")
    changed = " and ".join(name for name, any_ in (("reverted", done.reverted), ("edited", edits)) if any_)
    again = f" Read {changed} files again before you edit them." if changed else ""
    diffs = "".join(diff.text for _, diff in edits if diff is not None)
    return f"The person reviewed your changes: {'; '.join(parts)}.{again}" + (
        f"\nThe person's edits, from what was there to what is there now:\n{diffs}" if diffs else ""
    )


def _reverted(one: RevertedEntry) -> str:
    name = one.entry.path.display
    return name if one.hunks is None else f"{name} ({one.hunks[0]} of {_counted(one.hunks[1], 'hunk', 'hunks')})"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
