"""Agent packages, and the workflows that sessions run."""

from toolcrib.storage.migrations import run_script

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    run_script("0021_packages.sql")
