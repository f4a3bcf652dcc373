"""Result schemas of the toolsets `workspace` and `history`, for generated clients. Nothing is validated with them.

Tools write their results themselves; a test compares these with the schemas.
"""

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from toolcrib.core.files import AuthorKind, EntryKind, FileType


class ToolResult(BaseModel):
    """Base of every result."""

    model_config = ConfigDict(extra="forbid")


class LsEntry(ToolResult):
    id: UUID | None = Field(description="Null for untracked files.")
    synced: bool = Field(description="True if the file is tracked in the history.")
    name: str
    display_name: str
    path: str = Field(examples=["/src/main.rs"])
    file_type: str = Field(description="The file type, capitalized.", examples=["Document", "Folder"])
    is_virtual: bool
    updated_at: datetime


class LsResult(ToolResult):
    path: str
    entries: list[LsEntry]


class ReadResult(ToolResult):
    path: str
    content: Any = Field(description="Text, or a JSON value if the file was written as JSON.")
    total_lines: int | None
    truncated: bool | None
    offset: int | None
    limit: int | None
    hash: str = Field(description="Hash of the whole file. Pass it to `edit` as `last_read_hash`.")
    synced: bool


class ReadManyEntry(ToolResult):
    path: str
    success: bool
    content: Any
    hash: str | None
    synced: bool | None
    error: str | None
    total_lines: int | None
    truncated: bool | None


class ReadManyResult(ToolResult):
    files: list[ReadManyEntry]


class CatFile(ToolResult):
    path: str
    content: str | None
    line_count: int | None
    synced: bool | None
    offset: int | None
    limit: int | None
    total_lines: int | None
    error: str | None


class CatResult(ToolResult):
    content: str
    files: list[CatFile]


class FileChanged(ToolResult):
    path: str
    file_id: UUID
    version_id: UUID
    hash: str


class WriteResult(ToolResult):
    """The result of a write. A folder has no content version and no hash."""

    path: str
    file_id: UUID
    version_id: UUID | None
    hash: str | None


class EditResult(FileChanged):
    note: str | None = Field(
        default=None, description="Present if the edit was adapted to the file's CRLF line endings."
    )


class PathResult(ToolResult):
    path: str
    file_id: UUID | None


class MvResult(ToolResult):
    from_path: str
    to_path: str


class GrepMatch(ToolResult):
    path: str
    line_number: int
    line_text: str
    before_context: list[str] | None = None
    after_context: list[str] | None = None
    context: list[str] | None = None


class GrepResult(ToolResult):
    matches: list[GrepMatch]
    timed_out: bool | None = None
    truncated: bool | None = None
    files_denied: int | None = None
    hint: str | None = Field(default=None, description="Why the result is incomplete and what to do.")


class FindEntry(ToolResult):
    path: str
    name: str
    synced: bool
    file_type: FileType
    size: int | None = Field(description="Null for folders.")
    updated_at: datetime


class FindResult(ToolResult):
    matches: list[FindEntry]


class GlobEntry(FindEntry):
    is_virtual: bool


class GlobResult(ToolResult):
    pattern: str
    base_path: str
    matches: list[GlobEntry]


class FileInfoResult(ToolResult):
    path: str
    file_type: FileType
    synced: bool
    is_virtual: bool
    size: int | None
    line_count: int | None
    created_at: datetime
    updated_at: datetime
    hash: str | None


class PlanEntry(ToolResult):
    path: str
    name: str
    metadata: dict[str, Any] | None
    error: str | None = None


class PlanListResult(ToolResult):
    plans: list[PlanEntry]
    total: int


class PlanReadResult(ToolResult):
    path: str
    metadata: dict[str, Any] | None = Field(description="Null for a plan without frontmatter.")
    content: str
    hash: str
    total_lines: int


class PlanWriteResult(FileChanged):
    metadata: dict[str, Any] | None


class ExitPlanModeResult(ToolResult):
    mode: Literal["build"]
    plan_file: str


class HistoryEntry(ToolResult):
    """A file in the history, deleted or not."""

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


class VersionAuthor(ToolResult):
    kind: AuthorKind
    user_id: UUID | None
    agent_id: UUID | None
    run_id: UUID | None
    call_id: UUID | None


class VersionEntry(ToolResult):
    version_id: UUID
    file_id: UUID
    number: int
    change_set_id: UUID
    path: str
    kind: EntryKind
    deleted: bool
    size: int
    line_count: int | None
    mode: str
    hash: str | None
    author: VersionAuthor
    created_at: datetime


class FileVersionResult(VersionEntry):
    content: Any = Field(
        description="Text, or a JSON value if the file was written as JSON; null if the content was not kept."
    )


class FileVersionsResult(ToolResult):
    file: HistoryEntry
    versions: list[VersionEntry]


class DeletedFilesResult(ToolResult):
    files: list[HistoryEntry]


class FileCompareResult(ToolResult):
    from_: VersionEntry = Field(alias="from")
    to: VersionEntry
    added: int
    removed: int
    diff: str = Field(description="Unified diff.")


class FileRestoreResult(ToolResult):
    path: str
    file_id: UUID
    version_id: UUID
    restored_version_id: UUID
    hash: str | None


FileChange = Literal["created", "modified", "moved", "deleted"]


class ChangedFile(ToolResult):
    path: str
    from_path: str | None
    change: FileChange
    kind: EntryKind
    file_id: UUID
    added: int | None = None
    removed: int | None = None
    diff: str | None = Field(
        default=None,
        description="Unified diff. Absent for folders, protected paths, and content that is binary or too large.",
    )


class ChangesResult(ToolResult):
    """What calls, a run or a session changed, per file: from before the first change to after the last one."""

    changes: list[ChangedFile]
    total: int


class RevertedFile(ToolResult):
    path: str
    from_path: str | None
    change: FileChange
    kind: EntryKind
    file_id: UUID
    current_version_id: UUID = Field(description="The current version. For a deleted file, its deletion.")
    restored_version_id: UUID | None = Field(description="The restored version; null if the file did not exist before.")
    current_hash: str | None
    restored_hash: str | None


class UndoConflictEntry(ToolResult):
    path: str
    reason: str
    ours: VersionEntry
    theirs: VersionEntry | None


class UndoResult(ToolResult):
    dry_run: bool
    call_id: UUID = Field(description="The id of this undo. Undo it to redo the changes.")
    changes: list[RevertedFile]
    conflicts: list[UndoConflictEntry] = Field(description="Files that were not changed because of a conflict.")


RESULTS: Final[dict[str, type[ToolResult]]] = {
    "ls": LsResult,
    "read": ReadResult,
    "read_multiple_files": ReadManyResult,
    "cat": CatResult,
    "write": WriteResult,
    "edit": EditResult,
    "rm": PathResult,
    "mkdir": PathResult,
    "touch": PathResult,
    "mv": MvResult,
    "grep": GrepResult,
    "find": FindResult,
    "glob": GlobResult,
    "file_info": FileInfoResult,
    "plan_list": PlanListResult,
    "plan_read": PlanReadResult,
    "plan_write": PlanWriteResult,
    "plan_edit": EditResult,
    "exit_plan_mode": ExitPlanModeResult,
    "file_versions": FileVersionsResult,
    "file_version": FileVersionResult,
    "file_compare": FileCompareResult,
    "file_restore": FileRestoreResult,
    "deleted_files": DeletedFilesResult,
    "changes": ChangesResult,
    "undo": UndoResult,
}
