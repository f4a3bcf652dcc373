"""What the live protocols need: single-use tickets."""

from toolcrib.storage.migrations import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_script("0004_live.sql")
