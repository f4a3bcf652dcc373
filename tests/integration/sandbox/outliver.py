"""A server that is killed while its processes try to outlive it. It prints the ids of all processes."""

import asyncio
import json
import os
import sys
from pathlib import Path

from toolcrib.sandbox.background_process import BackgroundSandbox
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.sandbox.sandbox import Sandbox

STUBBORN = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; (sleep 600; :) & echo up; sleep 600' &); sleep 600"


async def main(folder: Path) -> None:
    sandbox = Sandbox()
    mounts = [ViewMount("project", folder / "tree", "/mnt/project", writable=True)]
    background = BackgroundSandbox(sandbox, folder / "staging")
    started = await background.start(SandboxCommand(STUBBORN), mounts)
    await started.wait_for_output(0)
    async with sandbox.transaction(mounts, folder / "staging") as view:
        await view.run(SandboxCommand(STUBBORN, seconds=600), lambda _: tell())


def tell() -> None:
    sys.stdout.write(json.dumps([pid for pid in descendants(os.getpid()) if pid != os.getpid()]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
