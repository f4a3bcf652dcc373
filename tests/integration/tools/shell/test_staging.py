"""Where commands write before it counts: removed after the answer, and gone with the server in any case."""

from pathlib import Path

from toolcrib.sandbox.staging_directory import StagingDirectory

MANY = 40


async def test_what_commands_left_is_removed_also_when_much_of_it_waits(tmp_path: Path) -> None:
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
