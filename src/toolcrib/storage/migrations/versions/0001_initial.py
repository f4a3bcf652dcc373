"""The initial schema."""

from toolcrib.storage.migrate import run_script

revision = "0001_initial"
down_revision = None


def upgrade() -> None:
    for subject in ("accounts", "workspaces", "files", "sessions", "paused_calls", "audit", "idempotency"):
        run_script(f"0001_{subject}.sql")
