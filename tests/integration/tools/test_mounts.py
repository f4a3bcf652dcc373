"""The `mounts` toolset at the gate: formats, windows, limits, searches, and what it hides."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.builders import speaker, state_of, tool_result


def hexed(content: str | bytes) -> str:
    return sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def code_of(result: dict[str, Any]) -> str:
    assert result["ok"] is False
    assert set(result["error"]) - {"details"} == {"code", "message"}
    return str(result["error"]["code"])


def create_files(root: Path, contents: dict[str, str]) -> None:
    """Create files that are not tracked."""
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


# fs.list


async def test_list_returns_names_folders_first_without_hidden_entries_and_links(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"b.txt": "", "a.txt": "", "sub/c.txt": "", ".hidden": "", ".git/config": ""})
    (workspace.project / "link.txt").symlink_to("a.txt")

    assert await tool_result(workspace, "fs.list", path="@project") == {
        "ok": True,
        "path": "@project",
        "entries": ["sub/", "a.txt", "b.txt"],
        "truncated": False,
    }
    assert (await tool_result(workspace, "fs.list", path="@project/sub"))["entries"] == ["c.txt"]


@pytest.mark.parametrize("mount", ["project", "central", "pkg", "state"])
async def test_every_mount_has_a_root_that_can_be_listed(workspace: WorkspaceFixture, mount: str) -> None:
    result = await tool_result(workspace, "fs.list", path=f"@{mount}")

    logs = ["logs/"] if mount == "state" else []
    assert (result["ok"], result["path"], result["entries"] in ([], logs)) == (True, f"@{mount}", True)


async def test_long_list_is_a_preview_with_a_hint(workspace: WorkspaceFixture) -> None:
    for number in range(201):
        (workspace.project / f"{number:03}").touch()

    result = await tool_result(workspace, "fs.list", path="@project")

    assert result["entriesPreview"] == [f"{number:03}" for number in range(200)]
    assert (result["truncated"], "entries" in result) == (True, False)
    assert "200 of 201" in result["hint"]


async def test_non_folder_is_not_listed(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": ""})

    assert code_of(await tool_result(workspace, "fs.list", path="@project/none")) == "ENOENT"
    assert code_of(await tool_result(workspace, "fs.list", path="@project/a.txt")) == "E_INTERNAL"


# fs.read


async def test_read_returns_the_complete_file_its_size_and_its_hash(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="one\ntwo €\n")

    assert await tool_result(workspace, "fs.read", path="@project/a.txt") == {
        "ok": True,
        "path": "@project/a.txt",
        "bytes": 12,
        "sha256": hexed("one\ntwo €\n"),
        "truncated": False,
        "content": "one\ntwo €\n",
    }


async def test_window_counts_from_one_and_includes_its_last_line(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "one\ntwo\nthree\nfour"})
    windows: list[tuple[dict[str, int], str]] = [
        ({"startLine": 2, "endLine": 3}, "two\nthree\n"),
        ({"startLine": 3}, "three\nfour"),
        ({"endLine": 1}, "one\n"),
        ({"startLine": 4, "endLine": 99}, "four"),
        ({"startLine": 9}, ""),
    ]

    for window, content in windows:
        result = await tool_result(workspace, "fs.read", path="@project/a.txt", **window)
        assert (result["content"], result["bytes"], result["sha256"]) == (content, 18, hexed("one\ntwo\nthree\nfour"))


async def test_window_that_ends_before_it_begins_is_rejected(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "one\n"})

    assert (
        code_of(await tool_result(workspace, "fs.read", path="@project/a.txt", startLine=2, endLine=1)) == "E_INTERNAL"
    )


async def test_read_limits_a_large_file_returns_truncated_and_a_hint(workspace: WorkspaceFixture) -> None:
    text = "0123456789\n" * 10_000
    create_files(workspace.project, {"a.txt": text})

    result = await tool_result(workspace, "fs.read", path="@project/a.txt")

    assert (result["truncated"], result["contentPreview"], result["bytes"]) == (True, text[:50_000], len(text))
    assert "startLine" in result["hint"]
    assert "fs.search" in result["hint"]
    assert "content" not in result
    assert result["sha256"] == hexed(text)


async def test_too_large_window_is_truncated_and_one_that_fits_is_not(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "0123456789\n" * 10_000})

    wide = await tool_result(workspace, "fs.read", path="@project/a.txt", startLine=2, endLine=9_000)
    narrow = await tool_result(workspace, "fs.read", path="@project/a.txt", startLine=9_000, endLine=9_001)

    assert (wide["truncated"], len(wide["contentPreview"])) == (True, 50_000)
    assert (narrow["truncated"], narrow["content"]) == (False, "0123456789\n" * 2)


async def test_agents_rules_limit_the_size_of_a_read(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "€" * 10})
    agent = await speaker(workspace, max_read_bytes=10)

    result = await tool_result(workspace, "fs.read", agent, path="@project/a.txt")

    assert (result["truncated"], result["contentPreview"], result["bytes"]) == (True, "€€€", 30)
    assert (await tool_result(workspace, "fs.read", path="@project/a.txt"))["truncated"] is False


async def test_file_larger_than_any_read_limit_is_hashed_shown_and_searched(workspace: WorkspaceFixture) -> None:
    line = b"x" * 99 + b"\n"
    body = line * 120_000 + b"needle\n"
    (workspace.project / "big.log").write_bytes(body)
    assert len(body) > workspace.settings.max_file_bytes

    result = await tool_result(workspace, "fs.read", path="@project/big.log")
    last = await tool_result(workspace, "fs.read", path="@project/big.log", startLine=120_001)
    found = await tool_result(workspace, "fs.search", path="@project/big.log", pattern="needle", before=0, after=0)

    assert (result["bytes"], result["sha256"], result["truncated"]) == (len(body), sha256(body).hexdigest(), True)
    assert last["content"] == "needle\n"
    assert found["matches"] == [{"path": "@project/big.log", "line": 120_001, "text": "needle"}]


async def test_binary_file_is_read_as_far_as_it_is_text(workspace: WorkspaceFixture) -> None:
    (workspace.project / "a.bin").write_bytes(b"\x00\xff\x01")

    result = await tool_result(workspace, "fs.read", path="@project/a.bin")

    assert (result["content"], result["bytes"], result["sha256"]) == ("\0\ufffd\x01", 3, hexed(b"\x00\xff\x01"))


async def test_missing_file_and_folder_cannot_be_read(workspace: WorkspaceFixture) -> None:
    (workspace.project / "folder").mkdir()

    assert code_of(await tool_result(workspace, "fs.read", path="@project/none")) == "ENOENT"
    assert code_of(await tool_result(workspace, "fs.read", path="@project/folder")) == "E_INTERNAL"


async def test_file_written_by_another_program_is_read_and_tracked(workspace: WorkspaceFixture) -> None:
    written = await workspace.result("write", path="/a.txt", content="old\n")
    (workspace.project / "a.txt").write_text("new\n")

    assert (await tool_result(workspace, "fs.read", path="@project/a.txt"))["content"] == "new\n"
    versions = await workspace.result("file_versions", file_id=written["file_id"])
    assert [version["author"]["kind"] for version in versions["versions"]] == ["external", "user"]


# fs.search


async def test_search_finds_lines_with_their_context(workspace: WorkspaceFixture) -> None:
    create_files(
        workspace.project, {"a.txt": "zero\none\ntwo needle\nthree\nfour\n", "sub/b.txt": "needle\r\nafter\r\n"}
    )

    result = await tool_result(workspace, "fs.search", path="@project", pattern="needle")

    assert result == {
        "ok": True,
        "path": "@project",
        "matches": [
            {"path": "@project/a.txt", "line": 3, "text": "two needle", "before": ["one"], "after": ["three"]},
            {"path": "@project/sub/b.txt", "line": 1, "text": "needle", "before": [], "after": ["after"]},
        ],
        "truncated": False,
        "stats": {"filesScanned": 2, "matchesFound": 2},
    }


async def test_context_has_the_requested_number_of_lines_of_the_same_file(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "1\n2\n3\nx\n4\nx\n5\n6\n", "b.txt": "x\n"})

    result = await tool_result(workspace, "fs.search", path="@project", pattern="x", before=2, after=3)
    bare = await tool_result(workspace, "fs.search", path="@project", pattern="x", before=0, after=0)

    assert [(m["line"], m["before"], m["after"]) for m in result["matches"]] == [
        (4, ["2", "3"], ["4", "x", "5"]),
        (6, ["x", "4"], ["5", "6"]),
        (1, [], []),
    ]
    assert all(set(match) == {"path", "line", "text"} for match in bare["matches"])


async def test_search_skips_git_node_modules_hidden_entries_links_and_binary_files(workspace: WorkspaceFixture) -> None:
    skipped = (".git/HEAD", "node_modules/m.js", "sub/node_modules/m.js", ".cache/c.txt", "sub/.hidden", ".env")
    create_files(workspace.project, {"a.txt": "x", **dict.fromkeys(skipped, "x")})
    (workspace.project / "link.txt").symlink_to("a.txt")
    (workspace.project / "b.bin").write_bytes(b"\0x")

    result = await tool_result(workspace, "fs.search", path="@project", pattern="x")

    assert [match["path"] for match in result["matches"]] == ["@project/a.txt"]


async def test_search_stops_at_the_match_limit(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "x\n" * 60})

    default = await tool_result(workspace, "fs.search", path="@project", pattern="x")
    three = await tool_result(workspace, "fs.search", path="@project", pattern="x", maxMatches=3, after=2)
    exact = await tool_result(workspace, "fs.search", path="@project", pattern="x", maxMatches=60)

    assert (len(default["matches"]), default["truncated"]) == (50, True)
    assert default["stats"]["matchesFound"] == 50
    assert [match["after"] for match in three["matches"]] == [["x", "x"]] * 3
    assert (len(exact["matches"]), exact["truncated"], "hint" in exact) == (60, False, False)


async def test_search_returns_no_more_than_the_read_limit(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": ("x" * 500 + "\n") * 40})
    agent = await speaker(workspace, max_read_bytes=2_000)

    result = await tool_result(workspace, "fs.search", agent, path="@project", pattern="x", before=0, after=0)

    assert (len(result["matches"]), result["truncated"]) == (4, True)


async def test_endless_line_is_truncated(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "x" * 3_000_000 + "needle\nnext needle\n"})

    result = await tool_result(workspace, "fs.search", path="@project", pattern="needle", before=0, after=0)

    assert [match["line"] for match in result["matches"]] == [1, 2]
    assert max(len(match["text"]) for match in result["matches"]) <= 1_001


async def test_pattern_is_literal_unless_written_as_an_expression(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "foo\nbar\nbarn\nfoooo\na/b\n\nn 123\r\n"})
    wanted = {
        "/fo+/": [1, 4],
        "/FO+/i": [1, 4],
        "/FO+/": [],
        r"/\bbar\b/": [2],
        r"/a\/b/": [5],
        "/^$/": [6],
        r"/\d{3}$/": [7],
        "/a/b/": [],
        "a/b": [5],
        "fo+": [],
        "/none": [],
    }

    found = {pattern: await tool_result(workspace, "fs.search", path="@project", pattern=pattern) for pattern in wanted}

    assert {pattern: [match["line"] for match in result["matches"]] for pattern, result in found.items()} == wanted


async def test_expression_works_across_many_files(workspace: WorkspaceFixture) -> None:
    for number in range(300):
        (workspace.project / f"{number:03}.txt").write_text(f"first\nnumber {number}\nlast\n")

    result = await tool_result(workspace, "fs.search", path="@project", pattern="/number 1?42$/", before=0, after=0)

    assert [(match["path"], match["line"]) for match in result["matches"]] == [
        ("@project/042.txt", 2),
        ("@project/142.txt", 2),
    ]
    assert result["stats"]["filesScanned"] == 300


async def test_invalid_expression_is_reported(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "a\n"})

    for pattern in ("/(/", "/[z-a]/", "/a{99999}/", "/((((a{1,200}){1,200}){1,200}){1,200})/", "/\ud800/"):
        result = await tool_result(workspace, "fs.search", path="@project", pattern=pattern)
        assert code_of(result) == "E_INTERNAL"
        assert set(result["error"]["details"]["fields"]) == {"pattern"}


async def test_exponential_expression_is_ended(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"a.txt": "a" * 20_011 + "\n"})
    impatient = await speaker(workspace, tool_permissions={"fs.search": {"allowed": True, "timeout": 0.5}})

    result = await tool_result(workspace, "fs.search", impatient, path="@project", pattern=r"/^(aa+)\1+$/")

    assert code_of(result) == "E_INTERNAL"
    assert "too long" in result["error"]["message"]


async def test_virtual_file_is_read_and_searched_by_its_own_path(workspace: WorkspaceFixture) -> None:
    session = await workspace.stores.sessions.create(workspace.tenant, title="hello needle")
    chat = f"@project/chats/{session.id}.chat"

    assert (await tool_result(workspace, "fs.read", path=chat))["content"] == "# hello needle\n\n"
    result = await tool_result(workspace, "fs.search", path=chat, pattern="needle", before=0, after=0)
    assert result["matches"] == [{"path": chat, "line": 1, "text": "# hello needle"}]
    assert (await tool_result(workspace, "fs.search", path="@project", pattern="needle"))["matches"] == []
    assert (await tool_result(workspace, "fs.list", path="@project"))["entries"] == []
    assert code_of(await tool_result(workspace, "fs.write", path=chat, content="x")) == "E_INTERNAL"


async def test_search_finds_nothing_that_an_agent_may_not_read(workspace: WorkspaceFixture) -> None:
    create_files(workspace.project, {"secrets/a.txt": "needle", "my.credentials.txt": "needle", "open.txt": "needle"})
    os.link(workspace.project / "open.txt", workspace.project / "twin.txt")
    create_files(workspace.project, {"plain.txt": "needle"})
    agent = await speaker(workspace)

    person = await tool_result(workspace, "fs.search", path="@project", pattern="needle")
    found = await tool_result(workspace, "fs.search", agent, path="@project", pattern="needle")

    assert len(person["matches"]) == 5
    assert [match["path"] for match in found["matches"]] == ["@project/plain.txt"]


async def test_empty_search_is_rejected(workspace: WorkspaceFixture) -> None:
    assert code_of(await tool_result(workspace, "fs.search", path="@project", pattern="/(/")) == "E_INTERNAL"
    assert code_of(await tool_result(workspace, "fs.search", path="@project/none", pattern="x")) == "ENOENT"
    assert code_of(await tool_result(workspace, "fs.search", path="@project", pattern="")) == "E_INTERNAL"
    assert (await tool_result(workspace, "fs.search", path="@central", pattern="x"))["matches"] == []


# fs.write


@pytest.mark.parametrize("mount", ["project", "central", "state"])
async def test_write_creates_a_file_and_its_parent_folders(workspace: WorkspaceFixture, mount: str) -> None:
    result = await tool_result(workspace, "fs.write", path=f"@{mount}/a/b.txt", content="new €\n")

    assert result == {
        "ok": True,
        "path": f"@{mount}/a/b.txt",
        "bytesWritten": 8,
        "sha256After": hexed("new €\n"),
    }
    root = state_of(workspace, workspace.caller) if mount == "state" else workspace.mount(mount)
    assert (root / "a" / "b.txt").read_text() == "new €\n"


async def test_write_replaces_a_file_and_the_history_keeps_every_content(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@project/a.txt", content="one")
    (workspace.project / "b.txt").write_text("disk only")

    await tool_result(workspace, "fs.write", path="@project/a.txt", content="two")
    await tool_result(workspace, "fs.write", path="@project/b.txt", content="two")

    for path, authors in (("/a.txt", ["user", "user"]), ("/b.txt", ["user", "external"])):
        found = await workspace.result("ls", path="/")
        [file_id] = [entry["id"] for entry in found["entries"] if entry["path"] == path]
        versions = (await workspace.result("file_versions", file_id=file_id))["versions"]
        assert [version["author"]["kind"] for version in versions] == authors


async def test_atomic_writes_leave_the_final_file_and_no_partial_ones(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@project/a.txt", content="x" * 50_000)

    assert [(path.name, path.stat().st_size) for path in workspace.project.iterdir()] == [("a.txt", 50_000)]


async def test_write_limits(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace, max_write_bytes=10)
    (state_of(workspace, agent) / "w.md").write_text("---\na: 1\n---\n")
    patch = {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "n"}}}

    too_long = await tool_result(workspace, "fs.write", path="@project/a.txt", content="€" * 33_334)
    agents = await tool_result(workspace, "fs.write", agent, path="@project/b.txt", content="x" * 11)
    patched = await tool_result(workspace, "fs.apply_patch", agent, path="@state/w.md", patch=patch)

    assert {code_of(result) for result in (too_long, agents, patched)} == {"E_WRITE_LIMIT"}
    assert "100,002 bytes; the limit is 100,000" in too_long["error"]["message"]
    assert list(workspace.project.iterdir()) == []
    assert (await tool_result(workspace, "fs.write", agent, path="@project/b.txt", content="x" * 10))["ok"]


async def test_write_with_a_stale_hash_is_rejected(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@project/a.txt", content="one")
    arguments = {"path": "@project/a.txt", "content": "two"}

    stale = await tool_result(workspace, "fs.write", **arguments, ifMatchSha256=hexed("other"))
    gone = await tool_result(workspace, "fs.write", path="@project/b.txt", content="x", ifMatchSha256=hexed("one"))
    fresh = await tool_result(workspace, "fs.write", **arguments, ifMatchSha256=hexed("one"))

    assert code_of(stale) == code_of(gone) == "E_PRECONDITION_FAILED"
    assert "by you" in stale["error"]["message"]
    assert fresh["sha256After"] == hexed("two")
    assert not (workspace.project / "b.txt").exists()


async def test_folder_is_not_overwritten(workspace: WorkspaceFixture) -> None:
    (workspace.project / "folder").mkdir()

    assert code_of(await tool_result(workspace, "fs.write", path="@project/folder", content="x")) == "E_INTERNAL"
    assert code_of(await tool_result(workspace, "fs.write", path="@project/a", content="\ud800")) == "E_INTERNAL"


# fs.apply_patch

WORKFLOW = "---\n# kept\ntitle: 'W'\nstepsCompleted:\n  - plan\n---\n# Body\n---\nmore\n"


async def test_apply_patch_updates_frontmatter_fields_and_preserves_the_body(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@state/workflow.md", content=WORKFLOW)
    update = {
        "stepsCompleted": {"append": ["plan", "build"]},
        "variables": {"set": {"team": "core"}},
        "decisionLog": {"append": [{"choice": "a"}]},
        "artifacts": {"append": ["out.md"]},
        "currentNodeId": {"set": "build"},
        "updatedAt": {"set": "today"},
    }

    result = await tool_result(
        workspace,
        "fs.apply_patch",
        path="@state/workflow.md",
        patch={"operation": "updateFrontmatter", "update": update},
    )

    changed = (
        "---\n# kept\ntitle: 'W'\nstepsCompleted:\n  - plan\n  - build\nvariables:\n  team: core\n"
        "decisionLog:\n  - choice: a\nartifacts:\n  - out.md\ncurrentNodeId: build\nupdatedAt: today\n---\n"
        "# Body\n---\nmore\n"
    )
    assert (state_of(workspace, workspace.caller) / "workflow.md").read_text() == changed
    assert result == {
        "ok": True,
        "path": "@state/workflow.md",
        "sha256Before": hexed(WORKFLOW),
        "sha256After": hexed(changed),
    }


async def test_patch_that_changes_nothing_creates_no_version(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@state/workflow.md", content=WORKFLOW)
    patch = {"operation": "updateFrontmatter", "update": {"stepsCompleted": {"append": ["plan"]}}}

    outcome = await workspace.call("fs.apply_patch", path="@state/workflow.md", patch=patch)

    assert outcome.change_set_id is None
    assert outcome.result["sha256Before"] == outcome.result["sha256After"] == hexed(WORKFLOW)


async def test_apply_patch_if_match_sha256_mismatch_fails(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@state/workflow.md", content=WORKFLOW)
    patch = {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "x"}}}

    async def patched(**more: Any) -> dict[str, Any]:
        return await tool_result(workspace, "fs.apply_patch", path="@state/workflow.md", patch={**patch, **more})

    assert code_of(await patched(ifMatchSha256=hexed("other"))) == "E_PRECONDITION_FAILED"
    assert (await patched(ifMatchSha256=hexed(WORKFLOW).upper()))["ok"]


async def test_apply_patch_of_malformed_frontmatter_fails(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "fs.write", path="@state/workflow.md", content="---\na: [\n---\n")
    patch = {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "x"}}}

    result = await tool_result(workspace, "fs.apply_patch", path="@state/workflow.md", patch=patch)

    assert code_of(result) == "E_INVALID_FRONTMATTER"
    assert (state_of(workspace, workspace.caller) / "workflow.md").read_text() == "---\na: [\n---\n"


async def test_apply_patch_supports_one_operation_and_one_mount(workspace: WorkspaceFixture) -> None:
    update = {"operation": "updateFrontmatter", "update": {}}
    for mount in ("project", "central", "pkg"):
        workspace.mount(mount).joinpath("w.md").write_text(WORKFLOW)
        assert (
            code_of(await tool_result(workspace, "fs.apply_patch", path=f"@{mount}/w.md", patch=update))
            == "E_SANDBOX_VIOLATION"
        )

    other = await tool_result(
        workspace, "fs.apply_patch", path="@state/w.md", patch={"operation": "replace", "update": {}}
    )

    assert code_of(other) == "E_INTERNAL"
    assert code_of(await tool_result(workspace, "fs.apply_patch", path="@state/none.md", patch=update)) == "ENOENT"


# What they have in common

EVERY: dict[str, dict[str, Any]] = {
    "fs.list": {},
    "fs.read": {},
    "fs.search": {"pattern": "x"},
    "fs.write": {"content": "x"},
    "fs.apply_patch": {"patch": {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "x"}}}},
}
OUTSIDE = ["@foo/a", "/etc/passwd", "etc/passwd", "@project/../evil.txt", "@state/a/../b", "C:/x", "@project/a\0", "@"]


async def test_path_that_names_no_mount_or_leaves_it_is_a_violation(workspace: WorkspaceFixture) -> None:
    for tool, arguments in EVERY.items():
        codes = {path: code_of(await tool_result(workspace, tool, path=path, **arguments)) for path in OUTSIDE}
        assert codes == dict.fromkeys(OUTSIDE, "E_SANDBOX_VIOLATION"), tool


async def test_link_that_leads_out_is_a_violation(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("secret x\n")
    state = state_of(workspace, workspace.caller)
    (state / "out").symlink_to(tmp_path)
    (state / "file.md").symlink_to(tmp_path / "a.md")
    (state / "sub").mkdir()
    (state / "sub" / "up").symlink_to("../../../project")
    links = ["@state/out", "@state/out/a.md", "@state/out/new.md", "@state/file.md", "@state/sub/up"]

    for tool, arguments in EVERY.items():
        codes = {path: code_of(await tool_result(workspace, tool, path=path, **arguments)) for path in links}
        assert codes == dict.fromkeys(links, "E_SANDBOX_VIOLATION"), tool
    assert (tmp_path / "a.md").read_text() == "secret x\n"
    assert not (tmp_path / "new.md").exists()


async def test_link_that_stays_inside_is_not_followed_and_reported(workspace: WorkspaceFixture) -> None:
    state = state_of(workspace, workspace.caller)
    (state / "a.md").write_text("x\n")
    (state / "link.md").symlink_to("a.md")

    for tool, arguments in EVERY.items():
        result = await tool_result(workspace, tool, path="@state/link.md", **arguments)
        assert code_of(result) == "E_INTERNAL"
        assert "symbolic link" in result["error"]["message"]


async def test_invalid_argument_is_a_failure_of_the_dialect(workspace: WorkspaceFixture) -> None:
    for tool, arguments in EVERY.items():
        result = await tool_result(workspace, tool, path=5, colour="red", **arguments)
        assert code_of(result) == "E_INTERNAL"
        assert set(result["error"]["details"]["fields"]) == {"path", "colour"}


async def test_denied_permission_is_no_violation(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace, tool_permissions={"fs.write": {"allowed": True, "paths": ["src/**"]}})

    elsewhere = await tool_result(workspace, "fs.write", agent, path="@project/a", content="x")
    reading = await tool_result(workspace, "fs.read", agent, path="@project/a")

    assert code_of(elsewhere) == code_of(reading) == "E_INTERNAL"
    assert "its paths are src/**" in elsewhere["error"]["message"]


async def test_audit_log_has_the_outcome_of_a_call(workspace: WorkspaceFixture) -> None:
    for path in ("@project/none", "@project/../x"):
        await tool_result(workspace, "fs.read", path=path)

    records = (await workspace.stores.audit.page(workspace.tenant, before=None, limit=10)).records

    assert [(record.outcome, record.error_code) for record in records[::-1]] == [
        ("failed", "NOT_FOUND"),
        ("denied", "VALIDATION_ERROR"),
    ]
