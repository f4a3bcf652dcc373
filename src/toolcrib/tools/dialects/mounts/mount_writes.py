"""How much a caller of this toolset may write at once."""

from toolcrib.core.errors import WriteLimitExceeded
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts.mount_results import rules_of


def require_within_limit(body: bytes, context: ToolContext) -> None:
    """Raise ``WriteLimitExceeded`` if the content exceeds the limit of the caller or the server."""
    limit = min(rules_of(context.caller).max_write_bytes, context.tree.max_file_bytes)
    if len(body) > limit:
        raise WriteLimitExceeded(f"The content has {len(body):,} bytes; the limit is {limit:,}. Split it.")
