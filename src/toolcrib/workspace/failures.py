"""What the kernel's refusals mean to whoever asked. Chooses words; opens nothing."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from toolcrib.domain.errors import Conflict, OutsideMount, ToolcribError, ToolFailed
from toolcrib.domain.places import Place
from toolcrib.workspace.paths import shown

_FULL = "{path} was not changed. Free some space, then try again."
_DENIED = "The operating system denies access to {path}. Correct its owner or mode, then try again."
_MEANWHILE = "{path}, or a folder above it, was changed meanwhile. Look again, then repeat."

_MEANINGS: dict[int, tuple[type[ToolcribError], str]] = {
    errno.ENOSPC: (ToolFailed, f"The disk is full; {_FULL}"),
    errno.EDQUOT: (ToolFailed, f"The disk quota is used up; {_FULL}"),
    errno.EACCES: (ToolFailed, _DENIED),
    errno.EPERM: (ToolFailed, _DENIED),
    errno.EROFS: (ToolFailed, "The disk of {path} is mounted read-only. Mount it writable, then try again."),
    errno.ENAMETOOLONG: (ToolFailed, "A name in {path} is too long for this disk. Shorten it."),
    errno.EEXIST: (Conflict, "Something stands at {path} already. Choose another path, or remove it first."),
    errno.EISDIR: (Conflict, "A folder stands at {path}. Choose another path, or remove it first."),
    errno.ENOTDIR: (Conflict, "A file stands where {path} needs a folder. Choose another path, or move it."),
    errno.ENOTEMPTY: (Conflict, "The folder {path} is not empty. Remove what it holds first."),
    errno.EBUSY: (
        Conflict,
        "The operating system holds {path}, as it does a mount point. Choose another path.",
    ),
    errno.ENOENT: (Conflict, _MEANWHILE),
    errno.EAGAIN: (Conflict, _MEANWHILE),
    errno.ESTALE: (Conflict, _MEANWHILE),
    errno.EXDEV: (OutsideMount, "{path} is outside the workspace: another file system lies on the way."),
}


@contextmanager
def explaining(place: Place) -> Iterator[None]:
    """Turn the kernel's refusals of a change at ``place`` into ours."""
    try:
        yield
    except OSError as error:
        explain(error, place)


def explain(error: OSError, place: Place) -> NoReturn:
    """Raise what ``error`` means, or itself where it is no matter of the caller's or of the tree's."""
    if error.errno not in _MEANINGS:
        raise error
    meaning, words = _MEANINGS[error.errno]
    raise meaning(words.replace("{path}", shown(place))) from error
