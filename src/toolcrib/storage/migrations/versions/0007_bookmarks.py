"""Where clients that keep the conversation themselves left off."""

from toolcrib.storage.migrations import run_script

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_script("0007_bookmarks.sql")
