"""Who is refused by workspaces where they do not belong, and how often."""

from toolcrib.storage.migrations import run_script

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    run_script("0012_outsiders.sql")
