"""Chats and agents are files that are derived from their own rows: none is stored among the files."""

from toolcrib.storage.migrations import run_script

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    run_script("0020_virtual_files.sql")
