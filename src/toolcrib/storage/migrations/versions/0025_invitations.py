"""Invitations of people who have no account yet."""

from toolcrib.storage.migrations import run_script

revision = "0025"
down_revision = "0022"


def upgrade() -> None:
    run_script("0025_invitations.sql")
