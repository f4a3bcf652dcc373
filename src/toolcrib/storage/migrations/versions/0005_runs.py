"""Runs, the messages of a session, the processes that work on runs, and people's credentials for models."""

from toolcrib.storage.migrations import run_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run_script("0005_runs.sql")
