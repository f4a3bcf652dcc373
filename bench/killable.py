"""Toolcrib in a process that `bench kill_resume` kills: starts or continues one task of twenty calls.

usage: python -m bench.killable start|resume WORKSPACE USER SESSION FOLDER      (settings come from the environment)

Its only tool writes a line to the log of the session, in that folder, before it reads a file, and is declared not
idempotent. The process continues whatever runs it finds, as any server does.
"""

import asyncio
import sys
import time
from pathlib import Path
from uuid import UUID

from bench import BODY
from toolcrib.core.ids import SessionId, UserId, WorkspaceId
from toolcrib.core.runs import RunState
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.settings import Settings
from toolcrib.storage.database import Tenant
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, tool
from toolcrib.wiring.server import services

_LOOK_SECONDS = 0.02


def main(action: str, workspace: str, user: str, session: str, folder: str) -> None:
    tenant = Tenant(WorkspaceId(UUID(workspace)), UserId(UUID(user)))
    ending = asyncio.run(_work(action, tenant, SessionId(UUID(session)), Path(folder)))
    print(ending, flush=True)


async def _work(action: str, tenant: Tenant, session: SessionId, folder: Path) -> str:
    async with services(Settings(), tools=[_reader(folder)]) as parts:
        if action == "start":
            run = await parts.run_service.submit(
                tenant, session, "Read the sample files one by one and report.", via="bench"
            )
        else:
            [run] = await parts.run_service.runs.page(tenant, session, before=None, limit=1)
        while run.state is not RunState.ENDED:
            await asyncio.sleep(_LOOK_SECONDS)
            run = await parts.run_service.runs.get(tenant, run.id)
    return str(run.end_reason)


def _reader(folder: Path) -> Tool:
    @tool(
        name="read_sample",
        toolset="bench",
        category=ToolCategory.FILE,
        danger=Danger.SAFE,
        effects=lambda _: Effects(),
        idempotent=False,
    )
    async def read_sample(path: str, context: ToolContext) -> str:
        """Reads one of the sample files.

        Args:
            path: Its name.
        """
        with (folder / str(context.caller.session_id)).open("a") as log:
            log.write(f"{path} {time.monotonic_ns()}\n")
        return BODY

    return read_sample


if __name__ == "__main__":
    main(*sys.argv[1:])
