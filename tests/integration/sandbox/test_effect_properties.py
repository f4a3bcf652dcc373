"""For random scripts, the effect applied to a copy of the tree equals running the script on a copy of the tree."""

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.sandbox.sandbox_fixture import COPYING, SANDBOX, Stand, apply, snapshot
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox

NAMES = ("a", "b", "c", "d e", "é", "-x", "new\nline")
MODES = ("000", "400", "444", "500", "600", "644", "700", "755", "777", "1777")
# Root passes every permission check outside and none inside: the plain run must be equally unprivileged.
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] if os.geteuid() == 0 else []


def a_path(rng: random.Random) -> str:
    return "./" + "/".join(rng.choice(NAMES) for _ in range(rng.choice((1, 1, 2, 2, 3))))


def a_line(rng: random.Random, number: int) -> str:
    one, other = shlex.quote(a_path(rng)), shlex.quote(a_path(rng))
    body = f"line {number} " * rng.choice((1, 1, 400))
    return rng.choice(
        (
            f"echo '{body}' > {one}",
            f"echo '{body}' >> {one}",
            f"mkdir -p {one}",
            f"mkdir -p {one} && echo {number} > {one}/f{number}",
            f"rm -f {one}",
            f"rm -rf {one}",
            f"rm -rf {one}; mkdir {one}",
            f"rm -rf {one}; mkdir -p {one}/{rng.choice('abc')}; echo back > {one}/f",
            f"rm -rf {one}; echo file > {one}",
            # mv copies a folder of the tree (rename is EXDEV inside), so it must be able to read its contents.
            f"test -d {one} && chmod -R u+rwX {one}; mv {one} {other}",
            f"test -d {one} && chmod -R u+rwX {one}; mv -T {one} {other}",
            # To a new path: the result of copying a folder into itself depends on the order of its entries.
            f"cp -r {one} ./copy{number}",
            f"chmod {rng.choice(MODES)} {one}",
            f"chmod -R u+rwX {one}",
            f"ln -s {rng.choice(('a', 'b/c', 'nowhere'))} {one}",
            f"ln -sfn {rng.choice(('a', 'c'))} {one}",
            f"touch {one}",
            f"truncate -s {rng.choice((0, 3, 9000))} {one}",
            f"rmdir {one}",
            f"chmod {rng.choice(('700', '750', '755'))} .",
        )
    )


def a_script(rng: random.Random, lines: int, *, more: tuple[str, ...] = ()) -> str:
    written = [a_line(rng, number) for number in range(lines)] + list(more)
    return "\n".join(f"{{ {line}; }} 2>/dev/null" for line in written) + "\n:"


async def shown(seed: int, folder: Path, sandbox: Sandbox) -> None:
    rng = random.Random(seed)
    stand = Stand(folder, sandbox)
    # A tree with folders that their owner has locked is rejected: see test_transaction.
    before = a_script(rng, 12, more=("chmod -R u+rwX .",))
    for path in (stand.tree, folder / "plain", folder / "applied"):
        path.mkdir(exist_ok=True)
        subprocess.run([*POWERLESS, "sh", "-c", before], cwd=path, check=True)
    # Hard links that the command itself made: of older ones, an overlay changes one name only.
    link = f"echo one > ./h; ln ./h {shlex.quote(a_path(rng))}; echo two >> ./h"
    script = a_script(rng, 15, more=(link,))
    subprocess.run([*POWERLESS, "sh", "-c", script], cwd=folder / "plain", check=True)
    async with stand.begin() as view:
        result = await view.run(SandboxCommand(script))
        assert result.exit_code == 0, result.output.text
        apply(await view.effect(), folder / "applied")
    assert snapshot(folder / "applied") == snapshot(folder / "plain"), f"seed {seed}:\n{script}"


async def campaign(seeds: range, folder: Path, sandbox: Sandbox) -> None:
    for seed in seeds:
        here = folder / str(seed)
        here.mkdir()
        await shown(seed, here, sandbox)
        subprocess.run(["chmod", "-R", "u+rwX", here], check=True)
        shutil.rmtree(here)


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("first", range(0, 100, 25))
async def test_effect_of_a_random_script_matches_what_it_did(tmp_path: Path, first: int) -> None:
    await campaign(range(first, first + 25), tmp_path, SANDBOX)


async def test_effect_read_from_a_copy_matches_what_a_random_script_did(tmp_path: Path) -> None:
    await campaign(range(1_000, 1_020), tmp_path, COPYING)


@pytest.mark.long
async def test_effect_of_thousands_of_random_scripts_matches_what_they_did(tmp_path: Path) -> None:
    await campaign(range(10_000, 15_000), tmp_path, SANDBOX)
