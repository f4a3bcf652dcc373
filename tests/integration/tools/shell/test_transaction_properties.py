"""For random scripts: effect and commit equal running the script on a copy of the tree; undo equals the tree before."""

import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.sandbox.sandbox_fixture import snapshot
from tests.integration.sandbox.test_effect_properties import POWERLESS, a_path, a_script
from tests.integration.tools.shell.builders import new_workspace_fixture
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

# Folders stay open to their owner: only root could read them afterwards otherwise.
MODES = {"000": "u=rwX,go=", "400": "u=rwX,g=r,o=", "444": "a=rX,u+w", "500": "u=rwX,g=w,o=", "600": "u=rwX,go="}
MODES |= {"644": "u=rwX,go=rX", "1777": "777"}


def sayable(script: str) -> str:
    """The script without what the history cannot store: names of two lines, sticky bits, and the mode of the root."""
    return "\n".join(map(_sayable_line, script.replace("new\nline", "new line").split("\n")))


def _sayable_line(line: str) -> str:
    for mode, instead in MODES.items():
        line = line.replace(f"chmod {mode} ", f"chmod {instead} ")
    return ":" if line.endswith(" .; } 2>/dev/null") else line


def what_stands(tree: Path) -> dict[str, tuple[str, int, bytes]]:
    found = snapshot(tree)
    del found["."]
    return {path: (kind, mode & 0o777, body) for path, (kind, mode, body) in found.items()}


def scripts(seed: int) -> Iterator[str]:
    """Two scripts: one creates a tree, one changes it."""
    rng = random.Random(seed)
    yield sayable(a_script(rng, 20))
    link = f"echo one > ./h; ln ./h {shlex.quote(a_path(rng))}; echo two >> ./h"
    yield sayable(a_script(rng, 15, more=(link,)))


async def shown(seed: int, folder: Path, workspace: WorkspaceFixture) -> None:
    before, script = scripts(seed)
    plain = folder / str(seed)
    plain.mkdir()
    umask = ["sh", "-c", 'umask 022; exec sh -c "$1"', "sh"]
    for path in (plain, workspace.project):
        subprocess.run([*POWERLESS, *umask, before], cwd=path, check=True)
    then = what_stands(workspace.project)
    subprocess.run([*POWERLESS, *umask, script], cwd=plain, check=True)

    outcome = await workspace.call("bash", command=script)

    assert outcome.succeeded, (seed, outcome.error, script)
    assert what_stands(workspace.project) == what_stands(plain), f"seed {seed}:\n{before}\n---\n{script}"
    if "changed" not in outcome.result["metadata"]:
        return
    undone = await workspace.result("undo", calls=[str(outcome.call_id)])
    assert undone["conflicts"] == [], (seed, undone["conflicts"])
    assert what_stands(workspace.project) == then, f"seed {seed}, undone:\n{before}\n---\n{script}"
    redone = await workspace.result("undo", calls=[undone["call_id"]])
    assert redone["conflicts"] == [], (seed, redone["conflicts"])
    assert what_stands(workspace.project) == what_stands(plain), f"seed {seed}, redone:\n{before}\n---\n{script}"


async def campaign(seeds: range, folder: Path, database: Database, settings: Settings) -> None:
    for seed in seeds:
        workspace = await new_workspace_fixture(database, settings)
        await shown(seed, folder, workspace)
        for made in (folder / str(seed), workspace.project.parent):
            subprocess.run(["chmod", "-R", "u+rwX", made], check=True)
            shutil.rmtree(made)


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("first", range(0, 100, 25))
async def test_random_script_is_committed_as_it_would_have_run_and_undone(
    tmp_path: Path, database: Database, settings: Settings, first: int
) -> None:
    await campaign(range(first, first + 25), tmp_path, database, settings)


@pytest.mark.long
async def test_thousands_of_random_scripts_are_committed_and_undone(
    tmp_path: Path, database: Database, settings: Settings
) -> None:
    first = int(os.environ.get("TOOLCRIB_FIRST_SEED", "20000"))
    await campaign(range(first, first + 5_000), tmp_path, database, settings)
