"""MCP servers that a workspace's owners have added."""

from toolcrib.storage.migrations import run_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_script("0006_mcp.sql")
