"""The `ok` union: every error has a code of the dialect. And what a pattern means."""

from typing import Any

import pytest

import toolcrib.tools
from toolcrib.core.errors import (
    ApprovalRequired,
    BadArguments,
    Conflict,
    InvalidFrontmatter,
    NotFound,
    PathOutsideMount,
    PermissionDenied,
    PreconditionFailed,
    ProtectedPath,
    ReadOnlyMount,
    SymlinkNotFollowed,
    TimedOut,
    TooLarge,
    ToolcribError,
    ToolFailed,
    WriteLimitExceeded,
)
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.dialects.mounts_dialect import failed
from toolcrib.tools.tool_registry import ToolRegistry, discover_tools

TOOLS = {tool.name: tool for tool in discover_tools(toolcrib.tools) if tool.toolset == "mounts"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), "ENOENT"),
        (PathOutsideMount("x"), "E_SANDBOX_VIOLATION"),
        (ProtectedPath("x"), "E_SANDBOX_VIOLATION"),
        (ReadOnlyMount("x"), "E_SANDBOX_VIOLATION"),
        (TooLarge("x"), "E_READ_LIMIT"),
        (WriteLimitExceeded("x"), "E_WRITE_LIMIT"),
        (InvalidFrontmatter("x"), "E_INVALID_FRONTMATTER"),
        (PreconditionFailed("x"), "E_PRECONDITION_FAILED"),
        (Conflict("x"), "E_INTERNAL"),
        (SymlinkNotFollowed("x"), "E_INTERNAL"),
        (TimedOut("x"), "E_INTERNAL"),
        (PermissionDenied("x"), "E_INTERNAL"),
        (ApprovalRequired("x"), "E_INTERNAL"),
        (ToolFailed("x"), "E_INTERNAL"),
    ],
)
def test_every_error_has_a_code_of_the_dialect(error: ToolcribError, code: str) -> None:
    result = failed(error)

    assert (result["ok"], result["error"]["code"], result["error"]["message"]) == (False, code, "x")


def test_a_wrong_argument_is_named() -> None:
    assert failed(BadArguments({"startLine": "Must be at least 1."})) == {
        "ok": False,
        "error": {
            "code": "E_INTERNAL",
            "message": "Must be at least 1.",
            "details": {"fields": {"startLine": "Must be at least 1."}},
        },
    }


def test_a_violation_names_its_kind() -> None:
    assert failed(ReadOnlyMount("x"))["error"]["details"] == {"violation": "read_only_mount"}


def test_names_dangers_and_categories() -> None:
    assert {name for name, tool in TOOLS.items() if tool.danger is Danger.SAFE} == {"fs.list", "fs.read", "fs.search"}
    assert {name for name, tool in TOOLS.items() if tool.danger is Danger.DANGEROUS} == {"fs.write", "fs.apply_patch"}
    assert {tool.category for tool in TOOLS.values()} == {ToolCategory.FILE}


@pytest.mark.parametrize(
    ("name", "more", "writes"),
    [
        ("fs.list", {}, False),
        ("fs.read", {}, False),
        ("fs.search", {"pattern": "x"}, False),
        ("fs.write", {"content": "x"}, True),
        ("fs.apply_patch", {"patch": {"operation": "updateFrontmatter", "update": {}}}, True),
    ],
)
def test_the_declared_effects_of_a_call(name: str, more: dict[str, Any], writes: bool) -> None:
    tool = TOOLS[name]
    path = WorkspacePath(Mount.STATE, "/a.md")
    reads = Effects(reads=(path,))

    effects = tool.effects(tool.parse({"path": "@state/a.md", **more}))

    if name == "fs.write":
        assert effects == Effects(writes=(path,))
    else:
        assert effects == (Effects(reads=(path,), writes=(path,)) if writes else reads)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"startLine": 0}, "startLine"),
        ({"endLine": 0}, "endLine"),
        ({"startLine": 5, "endLine": 4}, "args"),
        ({"lines": 5}, "lines"),
    ],
)
def test_windows_are_checked(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(BadArguments) as caught:
        ToolRegistry(TOOLS.values()).require("fs.read").parse({"path": "@project/a", **arguments})

    assert set(caught.value.fields) == {field}


def test_a_patch_with_an_unknown_field_is_rejected() -> None:
    patch = {"operation": "updateFrontmatter", "update": {"stepsDone": {"append": ["x"]}}}

    with pytest.raises(BadArguments) as caught:
        TOOLS["fs.apply_patch"].parse({"path": "@state/a", "patch": patch})

    assert set(caught.value.fields) == {"patch.update.stepsDone"}
