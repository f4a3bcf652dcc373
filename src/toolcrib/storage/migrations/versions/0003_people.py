"""Approvals, the grants they leave behind, and questions."""

from toolcrib.storage.migrations import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_script("0003_people.sql")
