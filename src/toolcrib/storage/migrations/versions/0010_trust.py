"""Ceilings of trust, set by owners."""

from toolcrib.storage.migrations import run_script

revision = "0010"
down_revision = "0008"


def upgrade() -> None:
    run_script("0010_trust.sql")
