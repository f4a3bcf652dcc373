"""What the tools of the toolsets `workspace` and `history` answer, for those who generate clients. Checks nothing.

Tools write their results themselves; a test holds them against these shapes.
"""

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from toolcrib.domain.files import AuthorKind, FileType, NodeKind


class Result(BaseModel):
    """Base of every result."""

    model_config = ConfigDict(extra="forbid")


class Entry(Result):
    id: UUID | None = Field(description="Null for what only the disk knows.")
    synced: bool = Field(description="Whether the history knows it.")
    name: str
    display_name: str
    path: str = Field(examples=["/src/main.rs"])
    file_type: str = Field(description="Capitalised.", examples=["Document", "Folder"])
    is_virtual: bool
    updated_at: datetime


class Listing(Result):
    path: str
    entries: list[Entry]


class Reading(Result):
    path: str
    content: Any = Field(description="Text, or the value of a file that was written as JSON.")
    total_lines: int | None
    truncated: bool | None
    offset: int | None
    limit: int | None
    hash: str = Field(description="Of the whole file. Give it to `edit` as `last_read_hash`.")
    synced: bool


class ReadingOfMany(Result):
    path: str
    success: bool
    content: Any
    hash: str | None
    synced: bool | None
    error: str | None
    total_lines: int | None
    truncated: bool | None


class Readings(Result):
    files: list[ReadingOfMany]


class ShownFile(Result):
    path: str
    content: str | None
    line_count: int | None
    synced: bool | None
    offset: int | None
    limit: int | None
    total_lines: int | None
    error: str | None


class ShownFiles(Result):
    content: str
    files: list[ShownFile]


class Written(Result):
    path: str
    file_id: UUID
    version_id: UUID
    hash: str


class Edited(Written):
    note: str | None = Field(
        default=None, description="There if the passage was found otherwise than letter by letter."
    )


class Named(Result):
    path: str
    file_id: UUID | None


class Moved(Result):
    from_path: str
    to_path: str


class Match(Result):
    path: str
    line_number: int
    line_text: str
    before_context: list[str] | None = None
    after_context: list[str] | None = None
    context: list[str] | None = None


class Matches(Result):
    matches: list[Match]
    timed_out: bool | None = None
    truncated: bool | None = None
    files_withheld: int | None = None
    hint: str | None = Field(default=None, description="What to know of a result that is not all.")


class Found(Result):
    path: str
    name: str
    synced: bool
    file_type: FileType
    size: int | None = Field(description="Null for folders.")
    updated_at: datetime


class FoundFiles(Result):
    matches: list[Found]


class FoundByGlob(Found):
    is_virtual: bool


class FilesByGlob(Result):
    pattern: str
    base_path: str
    matches: list[FoundByGlob]


class FileInfo(Result):
    path: str
    file_type: FileType
    synced: bool
    is_virtual: bool
    size: int | None
    line_count: int | None
    created_at: datetime
    updated_at: datetime
    hash: str | None


class Plan(Result):
    path: str
    name: str
    metadata: dict[str, Any] | None
    error: str | None = None


class Plans(Result):
    plans: list[Plan]
    total: int


class PlanReading(Result):
    path: str
    metadata: dict[str, Any] | None = Field(description="Null for a plan without frontmatter.")
    content: str
    hash: str
    total_lines: int


class PlanWritten(Written):
    metadata: dict[str, Any] | None


class PlanModeLeft(Result):
    mode: Literal["build"]
    plan_file: str


class HistoryFile(Result):
    """A file of the history, deleted or not."""

    file_id: UUID
    version_id: UUID
    path: str
    file_type: FileType
    is_virtual: bool
    deleted: bool
    number: int
    size: int
    line_count: int | None
    mode: str = Field(examples=["0644"])
    hash: str | None
    created_at: datetime
    updated_at: datetime


class Author(Result):
    kind: AuthorKind
    user_id: UUID | None
    agent_id: UUID | None
    run_id: UUID | None
    call_id: UUID | None


class FileVersion(Result):
    version_id: UUID
    file_id: UUID
    number: int
    change_set_id: UUID
    path: str
    kind: NodeKind
    deleted: bool
    size: int
    line_count: int | None
    mode: str
    hash: str | None
    author: Author
    created_at: datetime


class VersionWithContent(FileVersion):
    content: Any = Field(description="Text, or the value of a file that was written as JSON; null if none was kept.")


class FileVersions(Result):
    file: HistoryFile
    versions: list[FileVersion]


class DeletedFiles(Result):
    files: list[HistoryFile]


class Comparison(Result):
    from_: FileVersion = Field(alias="from")
    to: FileVersion
    added: int
    removed: int
    diff: str = Field(description="Unified.")


class Restored(Result):
    path: str
    file_id: UUID
    version_id: UUID
    restored_version_id: UUID
    hash: str | None


FileChange = Literal["made", "changed", "moved", "deleted"]


class Changed(Result):
    path: str
    from_path: str | None
    change: FileChange
    kind: NodeKind
    file_id: UUID
    added: int | None = None
    removed: int | None = None
    diff: str | None = Field(default=None, description="Unified; absent where there is nothing to show as text.")


class Changes(Result):
    """What calls, a run or a session did, file by file: from before the first of them to what the last left."""

    changes: list[Changed]
    total: int


class Reversed(Result):
    path: str
    from_path: str | None
    change: FileChange
    kind: NodeKind
    file_id: UUID
    version_now: UUID = Field(description="What stands there now; of a file that is gone, its deletion.")
    version_then: UUID | None = Field(description="What it goes back to; null where it was not there before.")
    hash_now: str | None
    hash_then: str | None


class Clash(Result):
    path: str
    reason: str
    ours: FileVersion
    theirs: FileVersion | None


class Undone(Result):
    dry_run: bool
    call_id: UUID = Field(description="Undo this call to redo.")
    changes: list[Reversed]
    conflicts: list[Clash] = Field(description="Files that are left alone.")


RESULTS: Final[dict[str, type[Result]]] = {
    "ls": Listing,
    "read": Reading,
    "read_multiple_files": Readings,
    "cat": ShownFiles,
    "write": Written,
    "edit": Edited,
    "rm": Named,
    "mkdir": Named,
    "touch": Named,
    "mv": Moved,
    "grep": Matches,
    "find": FoundFiles,
    "glob": FilesByGlob,
    "file_info": FileInfo,
    "plan_list": Plans,
    "plan_read": PlanReading,
    "plan_write": PlanWritten,
    "plan_edit": Edited,
    "exit_plan_mode": PlanModeLeft,
    "file_versions": FileVersions,
    "file_version": VersionWithContent,
    "file_compare": Comparison,
    "file_restore": Restored,
    "deleted_files": DeletedFiles,
    "changes": Changes,
    "undo": Undone,
}
