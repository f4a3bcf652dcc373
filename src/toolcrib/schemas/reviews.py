"""The review of what a session's agent changed, on the wire."""

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from toolcrib.core.change_sets import ChangeKind
from toolcrib.core.files import AuthorKind
from toolcrib.schemas.schema_base import InModel, OutModel

HunkAuthor = Literal["agent", "others", "both"]
ReviewKind = Literal["file", "folder", "link", "git", "ignored"]
Version = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class ReviewHunkOut(OutModel):
    id: str = Field(description="A hash of the hunk's position and lines.")
    diff: str = Field(description="The hunk in unified format, with its header.")
    added: int
    removed: int
    author: HunkAuthor = Field(
        description="Whose change it is. `others` is not reverted with the file; `both` cannot be reverted by hunk."
    )


class ReviewSideOut(OutModel):
    """A file before or after the change."""

    size: int
    sha256: str | None = Field(description="Null if the content was not kept.")
    version_id: UUID | None = Field(description="The version with this content. Null if it was not kept.")


class OtherAuthorOut(OutModel):
    """Who wrote a version since the agent did: a person, another agent, or a program on the disk."""

    kind: AuthorKind
    user_id: UUID | None
    agent_id: UUID | None


class UncommonGitFileOut(OutModel):
    """A file of a git directory that may run code, such as a hook. It is decided with the directory."""

    path: str
    change: ChangeKind
    diff: str | None = Field(description="Its changed lines in unified format, without the names of files.")
    note: str | None = Field(description="Why there is no diff.")


class ReviewFileOut(OutModel):
    """A file that the agent changed; or a git directory or an ignored folder, each as one entry."""

    path: str
    from_path: str | None = Field(description="Where it was before, if it was moved.")
    change: ChangeKind
    kind: ReviewKind
    version: str = Field(description="Names what is shown; a decision repeats it.")
    files: int = Field(description="How many files the entry has.")
    mode: list[str] | None = Field(description="The mode before and now, if it changed.")
    size: int | None
    before: ReviewSideOut | None = Field(description="Null unless it was a file.")
    after: ReviewSideOut | None = Field(description="Null unless it is a file.")
    added: int | None
    removed: int | None
    hunks: list[ReviewHunkOut] = Field(
        description="Those of this page. One that other pages continue has only the lines of this page."
    )
    hunks_total: int = Field(description="How many hunks the change has.")
    lines: int = Field(description="How many lines all its hunks have.")
    next_line: int | None = Field(
        description="Where the next page of lines begins: ask for `path` with it as `from_line`. Null: no more."
    )
    inside: list[UncommonGitFileOut] = Field(
        default=[], description="Of a git directory: its files that may run code, with their lines."
    )
    note: str | None = Field(description="Why there are no hunks, or what the entry summarizes.")
    flaw: str | None = Field(
        description="Why its changes could not be shown, although there are some. Its counts are missing."
    )
    changed_by_others: bool = Field(description="Someone else has changed it since the agent did.")
    others: list[OtherAuthorOut] = Field(description="Who else has changed it since, the first one first.")


class ReviewOut(OutModel):
    """What the session's agent changed since the last review."""

    session_id: UUID
    version: str = Field(description="Names everything that is shown; a decision about all repeats it.")
    files: list[ReviewFileOut]
    total: int = Field(description="How many files the review has.")
    added: int = Field(description="Of the files listed here.")
    removed: int = Field(description="Of the files listed here.")
    unshown: list[str] = Field(description="The files listed here whose changes could not be shown.")
    left_out: int = Field(description="How many files are not listed here, and not in the sums.")
    next_offset: int | None = Field(
        description="Where the next page of files begins: pass it as `offset`. Null: no more."
    )


class FileDecisionIn(InModel):
    """Keep, revert or edit one file as it was shown."""

    path: str = Field(max_length=5_000, examples=["/src/parser.py"])
    version: Version = Field(description="The `version` of the file that was shown.")
    decision: Literal["keep", "revert", "edit"]
    hunks: list[str] = Field(
        default=[], max_length=10_000, description="Revert only these hunks and keep the others. Empty: the whole file."
    )
    content: str | None = Field(
        default=None,
        max_length=200_000,
        description="With `edit`: the whole new content, as your change. The file stays open.",
    )


class ReviewDecisionIn(InModel):
    """Decisions about files, or about everything that was shown."""

    decisions: list[FileDecisionIn] = Field(default=[], max_length=10_000)
    all: Literal["keep", "revert"] | None = None
    version: Version | None = Field(default=None, description="With `all`: the `version` of the review.")
    unshown: list[str] = Field(
        default=[], max_length=10_000, description="To keep all: the review's `unshown`, told to the person."
    )
    left_out: int = Field(default=0, ge=0, description="To keep all: the review's `left_out`, told to the person.")

    @model_validator(mode="after")
    def _something_is_decided(self) -> Self:
        if bool(self.decisions) == (self.all is not None) or (self.all is None) != (self.version is None):
            raise ValueError("Give either decisions, or all with the review's version")
        return self


class RevertedOut(OutModel):
    path: str
    hunks: int | None = Field(description="How many hunks were reverted; null for the whole file.")
    of: int | None = Field(description="Of how many.")


class EditedOut(OutModel):
    path: str
    added: int | None
    removed: int | None


class ReviewConflictOut(OutModel):
    path: str
    reason: str


class ReviewDecisionOut(OutModel):
    """What a decision did. Files with a conflict stay as they are, and open."""

    call_id: UUID = Field(description="Undo this call to bring back what was there before.")
    kept: list[str]
    reverted: list[RevertedOut]
    edited: list[EditedOut] = Field(description="Files with a new content by the person. They stay open.")
    conflicts: list[ReviewConflictOut]
    open: int = Field(description="How many files still wait for a review.")
    note: str = Field(description="What the agent is told with the next message.")
