"""When a person's logins were ended, so that open connections end with them."""

from toolcrib.storage.migrations import run_script

revision = "0015"
down_revision = "0013"


def upgrade() -> None:
    run_script("0015_logins_ended.sql")
