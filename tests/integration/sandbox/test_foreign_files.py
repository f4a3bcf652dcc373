"""A tree with files of other users or groups: the user namespace of a command maps only one of each."""

from pathlib import Path

from tests.integration.sandbox.sandbox_fixture import SANDBOX
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.transaction import has_foreign

# A small tree of root that everyone can read, on every machine that runs commands. Its effect is not applied.
OF_ROOT = Path("/usr/share/doc/bubblewrap")


async def test_command_changes_files_that_others_own_in_its_view(tmp_path: Path) -> None:
    mount = ViewMount("project", OF_ROOT, "/project", writable=True)

    async with SANDBOX.transaction([mount], tmp_path) as view:
        result = await view.run(SandboxCommand("echo two >> copyright && echo new > new.txt"))
        changed = {entry.path: str(entry.change) for entry in await view.effect()}

    assert (result.exit_code, result.output.text) == (0, "")
    assert changed == {"copyright": "modified", "new.txt": "created"}


async def test_tree_of_the_server_itself_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "a.txt").write_text("one\n")

    assert not has_foreign(tmp_path / "tree")
