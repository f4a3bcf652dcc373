"""Which systems Toolcrib can serve on."""

import sys

from toolcrib.domain.errors import Misconfigured


def require_linux() -> None:
    """Raises Misconfigured elsewhere: that a path cannot leave its workspace is the Linux kernel's doing."""
    if sys.platform == "linux":
        return
    raise Misconfigured(
        f"Toolcrib serves files on Linux only, and this is {sys.platform}: neither workspaces nor `bash` could be held "
        "here as they must be. Run it in a Linux virtual machine or container; from here, use that server: "
        "toolcrib --help shows --server."
    )
