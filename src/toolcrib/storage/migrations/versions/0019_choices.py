"""The default agent of a workspace, and the model that a session chose."""

from toolcrib.storage.migrations import run_script

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    run_script("0019_choices.sql")
