"""Let an agent change files, run the project's tests, and undo the change if they fail. Uses asyncio."""

import asyncio
import sys

from toolcrib import ApprovalOut, AsyncToolcrib, Reject


async def only_python_files(approval: ApprovalOut) -> bool | Reject:
    paths = [change.path or "" for change in approval.changes]
    return all(path.endswith(".py") for path in paths) or Reject("Change Python files only.")


async def main() -> int:
    async with AsyncToolcrib(".", approve=only_python_files) as crib:
        result = await crib.run("Make greet() polite")
        for change in await crib.changes(result):
            print(change["change"], change["path"])
        tests = await asyncio.create_subprocess_exec(sys.executable, "-m", "unittest", "-q")
        if await tests.wait() == 0:
            return 0
        undone = await crib.undo(result)
        print(f"The tests fail; {len(undone['changes'])} change was undone.")
        return 1


sys.exit(asyncio.run(main()))
