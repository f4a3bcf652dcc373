"""What the garbage collector need not look at."""

import gc
import sys

from toolcrib.core.errors import Misconfigured


def freeze_gc() -> None:
    """Lets full collections pass over all that there is now: modules and their classes, which stay to the end.

    They are some 300,000 objects. Going through them took a third of a second, in which every stream stood still.
    """
    gc.freeze()


# Which systems Toolcrib can serve on.


def require_linux() -> None:
    """Raises Misconfigured elsewhere: that a path cannot leave its workspace is the Linux kernel's doing."""
    if sys.platform == "linux":
        return
    raise Misconfigured(
        f"Toolcrib serves files on Linux only, and this is {sys.platform}: neither workspaces nor `bash` could be held "
        "here as they must be. Run it in a Linux virtual machine or container; from here, use that server: "
        "toolcrib --help shows --server."
    )
