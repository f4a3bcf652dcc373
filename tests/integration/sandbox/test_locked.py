"""Folders that their owner has locked: root reads them; without root the command is rejected."""

import os
from pathlib import Path

import pytest

from tests.integration.sandbox.sandbox_fixture import COPYING, SANDBOX, Stand
from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox


@pytest.mark.parametrize("sandbox", [SANDBOX, COPYING], ids=["overlay", "copy"])
async def test_contents_of_a_locked_folder_are_either_seen_or_rejected(tmp_path: Path, sandbox: Sandbox) -> None:
    stand = Stand(tmp_path, sandbox)
    path = stand.tree / "locked"
    path.mkdir()
    (path / ".env").write_text("SECRET=1")
    path.chmod(0)
    said = ""

    async def attempt() -> None:
        nonlocal said
        async with stand.begin(masked=["locked/.env"]) as view:
            said = (await view.run(SandboxCommand("chmod 700 locked; cat locked/.env; rm -rf locked"))).output.text
            paths = [entry.path for entry in await view.effect()]
        assert paths == ["locked/.env", "locked"]

    try:
        if os.geteuid() == 0:
            await attempt()
        else:
            with pytest.raises(ToolFailed, match="not accessible to its owner"):
                await attempt()
    finally:
        path.chmod(0o700)
    assert "SECRET" not in said
