"""What was found on disk that the history did not know: changes by the author ``external``, or by a process of ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib.domain.changes import Change
from toolcrib.domain.files import File, FileType, NodeKind, NodeState
from toolcrib.domain.ids import FileId, VersionId, new_id
from toolcrib.storage.changes import Settled


@dataclass(frozen=True, slots=True)
class Found:
    """Changes to book, how every file looks on disk, and when the disk says that each change was made, if it does."""

    changes: tuple[Change, ...]
    settled: tuple[Settled, ...]
    dates_ns: Mapping[VersionId, int] = field(default_factory=dict)


def external_change(file: File | None, state: NodeState | None, body: bytes | None) -> Change:
    """A file's step to what the disk holds; of a file that the history does not know yet, its first."""
    kind = state.kind if state else None
    type_ = file.type if file else FileType.DOCUMENT
    if kind is NodeKind.FOLDER:
        type_ = FileType.FOLDER
    elif kind is not None and type_ is FileType.FOLDER:
        type_ = FileType.DOCUMENT
    return Change(
        file_id=file.id if file else FileId(new_id()),
        version_id=VersionId(new_id()),
        type=type_,
        base=file.version_id if file else None,
        before=None if file is None or file.deleted else file.state,
        after=state,
        body=body,
    )
