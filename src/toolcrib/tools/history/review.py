"""Show what a session's agent changed since the last review, and keep, revert or edit it. For people."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.change_sets import ChangeKind
from toolcrib.core.errors import BadArguments, PermissionDenied, TooCostly, WorkerFailed
from toolcrib.core.files import AuthorKind, EntryKind, Version
from toolcrib.core.ids import SessionId
from toolcrib.core.paths import parse_path
from toolcrib.core.tool_calls import Danger
from toolcrib.policy.protected_paths import ProtectedPaths
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
    text_sides,
)
from toolcrib.workspace.changes.undo_plan import reversal_of
from toolcrib.workspace.text.content import encode_content
from toolcrib.workspace.text.hunks import DiffWindow, HunkAuthor
from toolcrib.workspace.text.text_diff import TextDiff
from toolcrib.workspace.text.worker_calls import all_compared, hunk_page

# How many files are on a page, and how many characters of hunks are shown with them.
_MOST_FILES: Final = 1_000
# Files of one decision: more than a page, because a person decides about all pages at once.
MOST_DECIDED: Final = 10_000
_ROOM: Final = 500_000
# Files of a git directory that are shown with their lines. The note names or counts them all.
_MOST_INSIDE: Final = 100
_hides: Final = ProtectedPaths().protects_reading
# Of one file: what is shown with the others, and what a page of it has.
_IN_LIST: Final = DiffWindow(0, 1_000, 50_000)
_PAGE: Final = DiffWindow(0, 5_000, 500_000)
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


class ReviewSide(ToolResult):
    """A file before or after the change."""

    size: int
    sha256: Annotated[str | None, Field(description="Null if the content was not kept.")]
    version_id: Annotated[IdText | None, Field(description="The version with this content. Null if it was not kept.")]


class OtherAuthor(ToolResult):
    kind: AuthorKind
    user_id: IdText | None
    agent_id: IdText | None


class UncommonGitFile(ToolResult):
    path: str
    change: ChangeKind
    diff: Annotated[str | None, Field(description="Its changed lines in unified format, without the names of files.")]
    note: Annotated[str | None, Field(description="Why there is no diff.")]


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
    before: Annotated[ReviewSide | None, Field(description="Null unless it was a file.")]
    after: Annotated[ReviewSide | None, Field(description="Null unless it is a file.")]
    added: int | None
    removed: int | None
    hunks: Annotated[
        list[ReviewHunk],
        Field(description="Those of this page. One that other pages continue has only the lines of this page."),
    ]
    hunks_total: Annotated[int, Field(description="How many hunks the change has.")]
    lines: Annotated[int, Field(description="How many lines all its hunks have.")]
    next_line: Annotated[
        int | None,
        Field(description="Where the next page of lines begins: ask for `path` with it as `from_line`. Null: no more."),
    ]
    inside: Annotated[
        list[UncommonGitFile],
        Field(description="Of a git directory: its files that may run code, such as hooks. Decided with it."),
    ]
    note: Annotated[str | None, Field(description="Why there are no hunks, or what the entry summarizes.")]
    flaw: Annotated[
        str | None,
        Field(description="Why its changes could not be shown, although there are some. Its counts are missing."),
    ]
    changed_by_others: Annotated[bool, Field(description="Someone else has changed it since the agent did.")]
    others: Annotated[list[OtherAuthor], Field(description="Who else has changed it since.")]


class ReviewResult(ToolResult):
    session_id: IdText
    version: Annotated[str, Field(description="Names everything that is shown; a decision about all repeats it.")]
    files: list[ReviewFile]
    total: Annotated[int, Field(description="How many files the review has.")]
    added: Annotated[int, Field(description="Of the files listed here.")]
    removed: Annotated[int, Field(description="Of the files listed here.")]
    unshown: Annotated[list[str], Field(description="The files listed here whose changes could not be shown.")]
    left_out: Annotated[int, Field(description="How many files are not listed here, and not in the sums.")]
    next_offset: Annotated[
        int | None, Field(description="Where the next page of files begins: pass it as `offset`. Null: no more.")
    ]


class ReviewArguments(ToolArguments):
    session_id: UUID = Field(description="Id of the session.")
    path: str | None = Field(default=None, max_length=5_000, description="Show only this file, by pages of its lines.")
    from_line: int = Field(default=0, ge=0, description="With `path`: the first line, from the page before.")
    offset: int = Field(default=0, ge=0, description="The first file, from the page before.")


@built_in("review", effects=no_effects, read_only=False)
async def review(arguments: ReviewArguments, context: ToolContext) -> ReviewResult:
    """Show what the agent of a session changed since the last review, by file and by hunk."""
    _reject_agents(context)
    found = await load_review(context.tree, SessionId(arguments.session_id))
    if arguments.path is not None:
        only = found.at(parse_path(arguments.path))
        listed: tuple[ReviewEntry, ...] = () if only is None else (only,)
        following = None
        files = [await _review_file(one, context, _PAGE._replace(first=arguments.from_line)) for one in listed]
    else:
        end = arguments.offset + _MOST_FILES
        listed, following = found.entries[arguments.offset : end], end if end < len(found.entries) else None
        files, room = [], _ROOM
        for entry in listed:
            most = min(room, _IN_LIST.characters)
            shown = await _review_file(
                entry, context, _IN_LIST._replace(characters=most, lines=_IN_LIST.lines * (most > 0))
            )
            room -= sum(len(hunk["diff"]) for hunk in shown["hunks"])
            files.append(shown)
    unshown = [one["path"] for one in files if one["flaw"] is not None]
    left_out = len(found.entries) - len(listed)
    return {
        "session_id": str(arguments.session_id),
        "version": found.version_shown(unshown, left_out),
        "files": files,
        "total": len(found.entries),
        "added": sum(one["added"] or 0 for one in files),
        "removed": sum(one["removed"] or 0 for one in files),
        "unshown": unshown,
        "left_out": left_out,
        "next_offset": following,
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
        default=[], max_length=MOST_DECIDED, description="What to keep and what to revert, by file and by hunk."
    )
    all: Literal["keep", "revert"] | None = Field(default=None, description="Keep or revert everything that was shown.")
    version: str | None = Field(default=None, max_length=64, description="With `all`: the `version` of the review.")
    unshown: list[str] = Field(
        default=[], max_length=MOST_DECIDED, description="To keep all: the review's `unshown`, told to the person."
    )
    left_out: int = Field(default=0, ge=0, description="To keep all: the review's `left_out`, told to the person.")

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
        if arguments.all == "keep":
            found.require_seen(arguments.version, arguments.unshown, arguments.left_out)
        else:
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
    diffs = await all_compared(pairs, room=_NOTE_ROOM)
    return [(path, diff if isinstance(diff, TextDiff) else None) for path, diff in zip(paths, diffs, strict=True)]


async def _review_file(entry: ReviewEntry, context: ToolContext, window: DiffWindow) -> ReviewFile:
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
        "before": _side(entry, before),
        "after": _side(entry, after),
        "added": None,
        "removed": None,
        "hunks": [],
        "inside": [],
        "hunks_total": 0,
        "lines": 0,
        "next_line": None,
        "note": None,
        "flaw": None,
        "changed_by_others": entry.was_changed_by_others,
        "others": _others(entry),
    }
    if entry.group is not None:
        if entry.group != "git":
            return {**shown, "note": _ignored_note(entry)}
        inside = [await _uncommon(one, context) for one in entry.uncommon[:_MOST_INSIDE]]
        return {**shown, "inside": inside, "note": await _git_note(entry, context)}
    if before is not None and after is not None and before.state.mode != after.state.mode:
        shown["mode"] = [f"{one.state.mode:04o}" for one in (before, after)]
    sides = await text_sides(context.tree, entry)
    if sides is None:
        return {**shown, "note": _why_no_hunks(entry)}
    try:
        page = await hunk_page(sides.before, sides.after, sides.steps, window)
    except (TooCostly, WorkerFailed) as error:
        return {**shown, "flaw": error.message}
    shown["added"], shown["removed"] = page.added, page.removed
    shown["hunks_total"], shown["lines"], shown["next_line"] = page.hunks, page.lines, page.next
    shown["hunks"] = [
        {"id": one.id, "diff": one.text, "added": one.added, "removed": one.removed, "author": one.author}
        for one in page.shown
    ]
    return shown


def _side(entry: ReviewEntry, version: Version | None) -> ReviewSide | None:
    if entry.group is not None or version is None or version.state.kind is not EntryKind.FILE:
        return None
    state = version.state
    known = state.sha256 or state.unkept_sha256
    kept = None if state.sha256 is None else str(version.id)
    return {"size": state.size, "sha256": known.hex() if known else None, "version_id": kept}


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
    return "Binary file." if any(state.sha256 is not None and state.size for state in states) else None


async def _uncommon(entry: ReviewEntry, context: ToolContext) -> UncommonGitFile:
    """Show a file of a git directory that may run code."""
    shown: UncommonGitFile = {"path": entry.path.display, "change": entry.change, "diff": None, "note": None}
    if reason := _hides(entry.path):
        return {**shown, "note": f"Its lines are not shown: it {reason}."}
    sides = await text_sides(context.tree, entry)
    if sides is None:
        return {**shown, "note": _why_no_hunks(entry) or "It is empty."}
    try:
        page = await hunk_page(sides.before, sides.after, sides.steps, _PAGE)
    except (TooCostly, WorkerFailed) as error:
        return {**shown, "note": error.message}
    note = None if page.next is None else f"Its first lines. It has {page.lines:,}."
    return {**shown, "diff": "".join(hunk.text for hunk in page.shown), "note": note}


async def _git_note(entry: ReviewEntry, context: ToolContext) -> str:
    """Summarize what happened in a git directory: ``2 commits, index, 1 branch, may run code: hooks/post-checkout``."""
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
    parts += [name for name in ("HEAD", "index") if name in names]
    objects = sum(name.startswith("objects/") for name in names)
    parts += [_counted(objects, "object", "objects")] if objects else []
    if uncommon := [one.path.path[prefix:] for one in entry.uncommon]:
        more = f" and {len(uncommon) - _MOST_NAMED:,} more" if len(uncommon) > _MOST_NAMED else ""
        parts.append(f"may run code: {', '.join(uncommon[:_MOST_NAMED])}{more}")
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
