"""Accounts, workspaces, the history, calls, the book."""

from toolcrib.storage.migrations import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_script("0001_foundation.sql")
