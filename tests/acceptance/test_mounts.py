"""The `mounts` toolset over HTTP: one test for each acceptance criterion of its authors, in their words.

Superseded in two points: `@central` is a fourth writable mount, and a link that stays inside its mount is not
followed but reported as a failure. Paths are opened confined and never checked first, so "realpath" is unused.
"""

import json
from pathlib import Path
from typing import Any

from tests.acceptance.shapes import A_TIME, A_UUID, Says, sha256_of
from tests.acceptance.workspace import Someone, Workspace

EVERY: dict[str, dict[str, Any]] = {
    "fs.list": {},
    "fs.read": {},
    "fs.search": {"pattern": "x"},
    "fs.write": {"content": "x"},
    "fs.apply_patch": {"patch": {"operation": "updateFrontmatter", "update": {}}},
}
VIOLATION = {
    "ok": False,
    "error": {"code": "E_SANDBOX_VIOLATION", "message": Says(), "details": {"violation": Says()}},
}


def state_of(workspace: Workspace, person: Someone) -> Path:
    path = workspace.project.parent / "state" / person.id
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_mount_enforcement_only_known_mounts_are_accepted(workspace: Workspace) -> None:
    for mount in ("project", "pkg", "state", "central"):
        assert workspace.result("fs.list", path=f"@{mount}")["ok"] is True
    for root in ("@foo", "@foo/a", "@", "project/a", "/etc", "C:\\a"):
        for tool, arguments in EVERY.items():
            assert workspace.result(tool, path=root, **arguments) == VIOLATION, (tool, root)


def test_sandbox_traversal_and_symlink_escapes_are_rejected(workspace: Workspace, ada: Someone, tmp_path: Path) -> None:
    (tmp_path / "evil.txt").write_text("outside x")
    (workspace.project / "escape").symlink_to(tmp_path)
    (state_of(workspace, ada) / "escape").symlink_to(tmp_path)
    paths = ["@project/../evil.txt", "@state/a/../../evil.txt", "@state/escape/evil.txt", "@state/escape"]

    for tool, arguments in EVERY.items():
        for path in paths:
            assert workspace.result(tool, path=path, **arguments) == VIOLATION, (tool, path)
    assert workspace.result("fs.write", path="@project/escape/new.txt", content="x") == VIOLATION
    assert [path.name for path in tmp_path.iterdir()] == ["evil.txt"]


def test_permissions_pkg_writes_are_rejected_and_only_the_others_are_writable(workspace: Workspace) -> None:
    workspace.result("fs.list", path="@pkg")
    (workspace.project.parent / "pkg" / "guide.md").write_text("# Guide\n")

    assert workspace.result("fs.read", path="@pkg/guide.md")["content"] == "# Guide\n"
    for tool in ("fs.write", "fs.apply_patch"):
        assert workspace.result(tool, path="@pkg/guide.md", **EVERY[tool]) == VIOLATION
    for mount in ("project", "state", "central"):
        assert workspace.result("fs.write", path=f"@{mount}/a.txt", content="x")["ok"] is True


def test_fs_read_supports_windowing_and_token_safe_truncation_and_returns_sha256(workspace: Workspace) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 10_001))
    workspace.put_file("/a.txt", text)

    whole = workspace.result("fs.read", path="@project/a.txt")
    window = workspace.result("fs.read", path="@project/a.txt", startLine=1_000, endLine=1_001)

    about = {"ok": True, "path": "@project/a.txt", "bytes": len(text), "sha256": sha256_of(text)}
    assert whole == {
        **about,
        "truncated": True,
        "contentPreview": text[:50_000],
        "hint": Says("startLine", "fs.search"),
    }
    assert window == {**about, "truncated": False, "content": "line 1000\nline 1001\n"}


def test_fs_search_returns_structured_matches_with_optional_context_and_truncation(workspace: Workspace) -> None:
    workspace.put_file("/src/a.txt", "one\nneedle\nthree\n")
    workspace.put_file("/src/b.txt", "needle\n" * 60)

    found = workspace.result("fs.search", path="@project/src/a.txt", pattern="/NEED.E/i")
    many = workspace.result("fs.search", path="@project", pattern="needle", before=0, after=0)

    assert found == {
        "ok": True,
        "path": "@project/src/a.txt",
        "matches": [
            {"path": "@project/src/a.txt", "line": 2, "text": "needle", "before": ["one"], "after": ["three"]},
        ],
        "truncated": False,
        "stats": {"filesScanned": 1, "matchesFound": 1},
    }
    assert (len(many["matches"]), many["truncated"], many["hint"]) == (50, True, Says("more"))
    assert many["matches"][1] == {"path": "@project/src/b.txt", "line": 1, "text": "needle"}


def test_fs_write_and_fs_apply_patch_enforce_write_limits_and_are_atomic(workspace: Workspace, ada: Someone) -> None:
    document = "---\nstepsCompleted: [plan]\n---\n# Body\n"
    state = state_of(workspace, ada)

    written = workspace.result("fs.write", path="@state/workflow.md", content=document)
    patched = workspace.result(
        "fs.apply_patch",
        path="@state/workflow.md",
        patch={
            "operation": "updateFrontmatter",
            "update": {"stepsCompleted": {"append": ["build"]}},
            "ifMatchSha256": written["sha256After"],
        },
    )
    too_large = workspace.result("fs.write", path="@state/large.md", content="x" * 100_001)

    assert patched == {
        "ok": True,
        "path": "@state/workflow.md",
        "sha256Before": written["sha256After"],
        "sha256After": sha256_of(state / "workflow.md"),
    }
    assert (state / "workflow.md").read_text() == "---\nstepsCompleted: [plan, build]\n---\n# Body\n"
    assert too_large == {"ok": False, "error": {"code": "E_WRITE_LIMIT", "message": Says("100,001 bytes", "100,000")}}
    assert {path.name for path in state.iterdir()} == {"workflow.md", "logs"}


def test_tool_results_always_match_the_union_and_are_json_safe(workspace: Workspace) -> None:
    workspace.put_file("/a.bin", b"\0\xff\xfe")
    codes = {}
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "a file that is not there": ("fs.read", {"path": "@project/none"}),
        "a path that leaves": ("fs.read", {"path": "@project/../x"}),
        "too much": ("fs.write", {"path": "@project/a", "content": "x" * 100_001}),
        "another content": ("fs.write", {"path": "@project/a.bin", "content": "x", "ifMatchSha256": "0" * 64}),
        "no YAML": ("fs.apply_patch", {"path": "@state/w.md", **EVERY["fs.apply_patch"]}),
        "no path": ("fs.list", {}),
        "no folder": ("fs.list", {"path": "@project/a.bin"}),
        "no expression": ("fs.search", {"path": "@project", "pattern": "/(/"}),
    }
    workspace.result("fs.write", path="@state/w.md", content="---\na: [\n---\n")

    for name, (tool, arguments) in calls.items():
        result = workspace.result(tool, **arguments)
        assert result["ok"] is False
        assert set(result["error"]) - {"details"} == {"code", "message"}
        codes[name] = result["error"]["code"]

    assert codes == {
        "a file that is not there": "ENOENT",
        "a path that leaves": "E_SANDBOX_VIOLATION",
        "too much": "E_WRITE_LIMIT",
        "another content": "E_PRECONDITION_FAILED",
        "no YAML": "E_INVALID_FRONTMATTER",
        "no path": "E_INTERNAL",
        "no folder": "E_INTERNAL",
        "no expression": "E_INTERNAL",
    }
    assert workspace.result("fs.read", path="@project/a.bin")["content"] == "\0\ufffd\ufffd"


def test_every_tool_call_is_audit_logged_with_input_output_and_duration(workspace: Workspace, ada: Someone) -> None:
    workspace.put_file("/foo.md", "secret words\n")

    workspace.result("fs.read", path="@project/foo.md", startLine=1, endLine=20)
    workspace.result("fs.write", path="@pkg/x", content="secret words")

    lines = (state_of(workspace, ada) / "logs" / "execution.jsonl").read_text().splitlines()
    read, write = map(json.loads, lines)
    assert read | {"durationMs": 0} == {
        "ts": A_TIME,
        "kind": "tool.exec",
        "toolCallId": A_UUID,
        "toolName": "fs.read",
        "agentId": None,
        "input": {"path": "@project/foo.md", "startLine": 1, "endLine": 20},
        "output": {
            "ok": True,
            "path": "@project/foo.md",
            "bytes": 13,
            "sha256": sha256_of("secret words\n"),
            "truncated": False,
            "content": {"bytes": 13, "sha256": sha256_of("secret words\n")},
        },
        "durationMs": 0,
    }
    assert write["output"]["error"]["code"] == "E_SANDBOX_VIOLATION"
    assert write["output"]["error"]["message"] == Says("@pkg/x", "read-only")
    assert "secret" not in "".join(lines)
