"""Staging directories of commands: removed after the response, and at the latest with the server."""

from pathlib import Path

from toolcrib.sandbox.transaction import StagingDirectory

MANY = 40


async def test_staging_directories_are_removed_also_when_many_are_pending(tmp_path: Path) -> None:
    staging = StagingDirectory(tmp_path / "staging")
    for number in range(MANY):
        left = staging.folder / f"command-{number}"
        locked = left / "0-work1" / "work"
        locked.mkdir(parents=True)
        (left / "made").write_text("made")
        locked.chmod(0)
        await staging.dispose(left)
    staging.close()
    assert list((tmp_path / "staging").iterdir()) == []
