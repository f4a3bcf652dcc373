"""The phase of its agent's workflow that a session is in."""

from toolcrib.storage.migrations import run_script

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    run_script("0022_phases.sql")
