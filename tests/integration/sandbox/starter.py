"""Servers that are killed at random moments while they start commands, one after the other.

Run as a program. Arguments: a folder with a tree, a mark in every command's arguments, the number of servers, a seed.
"""

import asyncio
import os
import select
import signal
import sys
from pathlib import Path
from random import Random

from toolcrib.sandbox.background_process import BackgroundSandbox
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox

# A start takes about this long, and a server has started several when it dies.
_LONGEST_SECONDS = 0.05


async def serve(sandbox: Sandbox, folder: Path, mark: str, tell: int) -> None:
    mounts = [ViewMount("project", folder / "tree", f"/mnt/{mark}", writable=True)]
    background = BackgroundSandbox(sandbox, folder / "staging")
    await background.start(SandboxCommand("true"), mounts)
    os.write(tell, b".")
    while True:
        await asyncio.gather(*(background.start(SandboxCommand("sleep 600"), mounts) for _ in range(3)))


def main(folder: Path, mark: str, servers: int, lot: Random) -> None:
    sandbox = Sandbox()
    asyncio.run(sandbox.probe())
    for _ in range(servers):
        heard, tell = os.pipe()
        server = os.fork()
        if server == 0:
            asyncio.run(serve(sandbox, folder, mark, tell))
        os.read(heard, 1)
        select.select([], [], [], lot.uniform(0, _LONGEST_SECONDS))
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        os.close(heard)
        os.close(tell)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Random(int(sys.argv[4])))
