"""Searches skip `.git` and what `.gitignore` ignores, say so, and include it on request."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture

SEARCHES: dict[str, tuple[str, dict[str, Any], Callable[[dict[str, Any]], list[str]]]] = {
    "grep": ("grep", {"pattern": "needle", "limit": 0}, lambda result: [match["path"] for match in result["matches"]]),
    "grep by name": (
        "grep",
        {"pattern": "needle", "path_pattern": "%.js"},
        lambda result: [match["path"] for match in result["matches"]],
    ),
    "glob": ("glob", {"pattern": "*.js"}, lambda result: [match["path"] for match in result["matches"]]),
    "find": ("find", {"name": "*.js"}, lambda result: [match["path"] for match in result["matches"]]),
    "ls": (
        "ls",
        {"recursive": True, "limit": 0},
        lambda result: [entry["path"] for entry in result["entries"] if entry["path"].endswith(".js")],
    ),
}


@pytest.fixture
def tree(workspace: WorkspaceFixture) -> WorkspaceFixture:
    files = {
        "src/app.js": "needle\n",
        "src/deep/kept.log.js": "needle\n",
        "src/deep/.gitignore": "!kept.log.js\n/made.js\n",
        "src/deep/made.js": "needle\n",
        "node_modules/lib/index.js": "needle\n",
        "node_modules/lib/deep/more.js": "needle\n",
        "other.log.js": "needle\n",
        ".git/hooks.js": "needle\n",
        "build/out.js": "needle\n",
        ".gitignore": "# made by programs\nnode_modules/\n*.log.js\nbuild\n!build\n",
    }
    for name, text in files.items():
        path = workspace.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return workspace


SEEN = ["/build/out.js", "/src/app.js", "/src/deep/kept.log.js"]
IGNORED = [
    "/.git/hooks.js",
    "/node_modules/lib/deep/more.js",
    "/node_modules/lib/index.js",
    "/other.log.js",
    "/src/deep/made.js",
]


@pytest.mark.parametrize("which", SEARCHES)
async def test_ignored_files_are_skipped_unless_asked(tree: WorkspaceFixture, which: str) -> None:
    tool, arguments, paths = SEARCHES[which]
    found = await tree.result(tool, **arguments)
    everything = await tree.result(tool, **arguments, include_ignored=True)

    assert sorted(paths(found)) == SEEN
    assert "include_ignored" in found["hint"]
    assert sorted(paths(everything)) == sorted(SEEN + IGNORED)
    assert "hint" not in everything


@pytest.mark.parametrize("which", ["glob", "find", "ls"])
@pytest.mark.parametrize("folder", ["/node_modules", "/node_modules/lib", "/.git"])
async def test_an_ignored_folder_that_is_named_is_searched(tree: WorkspaceFixture, which: str, folder: str) -> None:
    tool, arguments, paths = SEARCHES[which]
    found = await tree.result(tool, **arguments, path=folder)

    assert sorted(paths(found)) == [path for path in IGNORED if path.startswith(f"{folder}/")]
    assert "hint" not in found


async def test_a_folder_shows_its_ignored_entries(tree: WorkspaceFixture) -> None:
    found = await tree.result("ls", path="/")

    assert {"/.git", "/node_modules"} < {entry["path"] for entry in found["entries"]}
    assert "hint" not in found
    assert (await tree.result("read", path="/node_modules/lib/index.js"))["content"] == "needle\n"


@pytest.mark.parametrize("which", SEARCHES)
async def test_nothing_is_said_where_nothing_is_ignored(workspace: WorkspaceFixture, which: str) -> None:
    (workspace.project / "a.js").write_text("needle\n")
    tool, arguments, paths = SEARCHES[which]
    found = await workspace.result(tool, **arguments)

    assert paths(found) == ["/a.js"]
    assert "hint" not in found


async def test_a_large_ignored_folder_does_not_use_up_the_limit(workspace: WorkspaceFixture) -> None:
    modules = workspace.project / "node_modules"
    modules.mkdir()
    for number in range(300):
        (modules / f"{number}.js").write_text("needle\n")
    (workspace.project / "src").mkdir()
    (workspace.project / "src" / "app.js").write_text("needle\n")
    (workspace.project / ".gitignore").write_text("node_modules\n")

    listed = await workspace.result("ls", recursive=True)
    matched = await workspace.result("glob", pattern="*.js", limit=5)

    assert [entry["path"] for entry in listed["entries"]] == ["/src", "/.gitignore", "/src/app.js"]
    assert [match["path"] for match in matched["matches"]] == ["/src/app.js"]
