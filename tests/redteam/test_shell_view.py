"""Commands of an agent that is limited to some paths: other files are not in their view, and are not changed."""

import itertools
import os
from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.sandbox.sandbox_fixture import COPYING
from tests.integration.tools.shell.builders import hand, new_workspace_fixture, ran
from toolcrib.core.agents import ToolPermission
from toolcrib.core.errors import PermissionDenied
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import ToolCall
from toolcrib.policy.permissions import path_allowed
from toolcrib.sandbox.bubblewrap import is_masked
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.tools.shell.shell import outside_paths

SECRET = "only for others"


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    workspace = await new_workspace_fixture(database, settings)
    for mount in ("project", "central"):
        fill(workspace.mount(mount))
    return workspace


def fill(root: Path) -> None:
    for path in ("docs/guide.md", "docs/deep/more.md"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("for all")
    for path in ("plan.txt", "src/main.py", "src/docs/x.md", "docs2/x.md", "docs.md", ".git/config"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(SECRET)
    (root / "docs" / "out").symlink_to("../plan.txt")
    (root / "link").symlink_to("plan.txt")


READS = (
    "cat plan.txt src/main.py src/docs/x.md docs2/x.md docs.md link docs/out ../project/plan.txt",
    "cat /central/plan.txt /central/src/main.py",
    "grep -r . / --include='*.txt' --include='*.py' --include='*.md' -s",
    "tar cf - . /central | cat",
    "mv src docs/src; cat docs/src/main.py; rm -rf docs/src; cp -r . /tmp/all; cat /tmp/all/*",
    "ln plan.txt docs/alias; cat docs/alias; rm -f docs/alias",
    "exec 3< plan.txt; cat <&3; cat /proc/self/cwd/plan.txt",
    "git show HEAD:plan.txt; cat .git/config",
)


@pytest.mark.gate_cases(4)
@pytest.mark.parametrize("command", READS)
async def test_files_outside_the_paths_cannot_be_read(workspace: WorkspaceFixture, command: str) -> None:
    outcome = await workspace.call("bash", await hand(workspace, paths=["docs/**"]), command=command)

    assert SECRET not in str(outcome)
    assert (workspace.project / "plan.txt").read_text() == SECRET


async def test_files_inside_are_read_and_written(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, paths=["docs/**"])

    result = await ran(workspace, "cat docs/guide.md docs/deep/more.md; echo new > docs/new.md; mkdir docs/d", agent)

    assert result["output"] == "for allfor all"
    assert (workspace.project / "docs" / "new.md").read_text() == "new\n"


async def test_person_and_agent_without_paths_see_everything(workspace: WorkspaceFixture) -> None:
    assert (await ran(workspace, "cat plan.txt"))["output"] == SECRET
    assert (await ran(workspace, "cat plan.txt", await hand(workspace)))["output"] == SECRET


@pytest.mark.gate_cases(4)
@pytest.mark.parametrize(
    "command",
    [
        "echo x > new.txt",
        "echo x > plan.txt",
        "rm -f plan.txt",
        "rm -rf src",
        "mv docs2 docs/",
        "mv docs/guide.md guide.md",
        "mkdir other",
        "chmod 600 plan.txt",
        "rm -f link; ln -s docs/guide.md link",
        "echo x > /central/new.txt",
        "echo 'new*' > .gitignore; mkdir newdir; echo x > newdir/x",
    ],
)
async def test_files_outside_cannot_be_changed(workspace: WorkspaceFixture, command: str) -> None:
    before = {
        path: path.lstat().st_mtime_ns
        for path in sorted(workspace.project.parent.rglob("*"))
        if "state" not in str(path)
    }

    outcome = await workspace.call(
        "bash", await hand(workspace, paths=["docs/**"]), command=f"chmod -R u+w . 2>&-; {command}; :"
    )

    assert isinstance(outcome.error, PermissionDenied) or outcome.succeeded
    after = {path: path.lstat().st_mtime_ns for path in before}
    changed = {path for path in before if before[path] != after[path]}
    assert {path for path in changed if not path.is_relative_to(workspace.project / "docs")} == set()
    assert not (workspace.project / "new.txt").exists()
    assert not (workspace.project / "newdir").exists()


async def test_file_globs_exclude_and_single_directories_work_too(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, paths=["*.md", "!docs/deep/**", "!@central/**"])

    result = await ran(
        workspace, "cat docs/guide.md docs2/x.md docs/deep/more.md plan.txt /central/docs/guide.md; :", agent
    )

    content, _, note = result["output"].partition("\n")
    assert content == "for all" + SECRET
    assert note.startswith("[hidden from commands, ")
    for path in ("docs/deep/more.md", "plan.txt", "/central/docs/guide.md"):
        assert path in note


async def test_view_is_masked_on_a_copied_tree_too(workspace: WorkspaceFixture) -> None:
    copying = workspace.with_engine(sandbox=COPYING)

    outcome = await copying.call("bash", await hand(workspace, paths=["docs/**"]), command=READS[0])

    assert SECRET not in str(outcome)


async def test_explain_reports_what_a_command_would_see(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, paths=["docs/**", "!docs/deep/**"])

    model_input = await workspace.engine.executor.explain(ToolCall("bash", {"command": "ls"}), agent)

    assert model_input.reason.endswith("It is limited to its paths: docs/**, !docs/deep/**.")


# fmt: off
GLOBS = (
    "docs/**", "docs/", "/docs", "docs/*", "*.md", "src/docs", "**/x", "docs/src/**", "src/*/x",
    "d*/x", "\\docs/x", "/**",
)
# fmt: on


@pytest.mark.gate_cases(30)
@pytest.mark.parametrize("globs", [*itertools.combinations(GLOBS, 1), *itertools.combinations(GLOBS, 2)])
@pytest.mark.parametrize("taken", [(), ("!docs/x",), ("!**/a.md",)])
def test_file_is_masked_exactly_if_no_glob_covers_it(
    tmp_path_factory: pytest.TempPathFactory, globs: tuple[str, ...], taken: tuple[str, ...]
) -> None:
    root = tree_of_all_names(tmp_path_factory)
    permission = ToolPermission(allowed=True, paths=(*globs, *taken))

    masked = outside_paths(root, WorkspacePath(Mount.PROJECT, "/"), permission)

    for workspace_path, _, files in os.walk(root):
        for name in files:
            path = os.path.relpath(os.path.join(workspace_path, name), root)
            assert path_allowed(permission, WorkspacePath(Mount.PROJECT, f"/{path}")) is not is_masked(path, masked), (
                path
            )


_TREES: list[Path] = []


def tree_of_all_names(factory: pytest.TempPathFactory) -> Path:
    """Nested folders of these names, three deep, with files in each. Created once."""
    if not _TREES:
        root = factory.mktemp("names")
        for parts in itertools.product(("docs", "src", "b"), repeat=3):
            root.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            for name in ("a.md", "x", "y.txt"):
                (folder / name).touch()
        _TREES.append(root)
    return _TREES[0]
