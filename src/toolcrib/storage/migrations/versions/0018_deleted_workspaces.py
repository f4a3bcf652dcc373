"""Workspaces that are being deleted."""

from toolcrib.storage.migrations import run_script

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    run_script("0018_deleted_workspaces.sql")
