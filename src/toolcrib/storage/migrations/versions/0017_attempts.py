"""Attempts of runs and approved calls, so that work that ends its server is given up."""

from toolcrib.storage.migrations import run_script

revision = "0017"
down_revision = "0015"


def upgrade() -> None:
    run_script("0017_attempts.sql")
