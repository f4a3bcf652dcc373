"""Background processes, and what became of them."""

from toolcrib.storage.migrations import run_script

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run_script("0008_background.sql")
