"""Files that were displaced and are not in the history."""

from toolcrib.storage.migrations import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_script("0002_trash.sql")
