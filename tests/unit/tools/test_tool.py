"""A tool's arguments, with errors by field; and tool definitions."""

from typing import Any

import pytest

import toolcrib.tools
from tests.unit.tools.builders import BASH
from toolcrib.core.errors import BadArguments, PathOutsideMount
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.tools.tool_registry import ToolRegistry, discover_tools

REGISTRY = ToolRegistry(discover_tools(toolcrib.tools))


def project(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)


@pytest.mark.parametrize(
    ("tool", "arguments", "field", "words"),
    [
        ("read", {}, "path", "required"),
        ("read", {"path": 5}, "path", "valid string (got int)"),
        ("read", {"path": ["/a"]}, "path", "valid string (got list)"),
        ("read", {"path": None}, "path", "valid string (got NoneType)"),
        ("read", {"path": "  "}, "path", "empty"),
        ("read", {"path": "/a", "limit": 0}, "limit", "greater than or equal to 1"),
        ("read", {"path": "/a", "limit": "many"}, "limit", "valid integer"),
        ("read", {"path": "/a", "lines": 5}, "lines", "Unknown field. Fields of this tool: path, offset, limit."),
        ("cat", {"paths": []}, "paths", "at least 1"),
        ("cat", {"paths": ["/a"] * 21}, "paths", "at most 20"),
        ("cat", {"paths": ["/a", 7]}, "paths.1", "valid string (got int)"),
        ("read_multiple_files", {"paths": ["/a"] * 51}, "paths", "at most 50"),
        ("write", {"path": "/a", "content": "", "file_type": "novel"}, "file_type", "'document'"),
        ("mv", {"source": "/a", "destination": 3}, "destination", "valid string (got int)"),
        ("edit", {"path": "/a", "old_string": "a"}, "args", "either old_string and new_string"),
        (
            "edit",
            {"path": "/a", "old_string": "a", "new_string": "b", "insert_line": 0, "insert_content": "c"},
            "args",
            "either old_string and new_string",
        ),
        ("file_version", {"version_id": "first"}, "version_id", "valid UUID"),
    ],
)
def test_a_wrong_argument_is_reported_by_its_field(
    tool: str, arguments: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        REGISTRY.require(tool).parse(arguments)

    assert words in caught.value.fields[field]


def test_several_wrong_arguments_are_reported_at_once() -> None:
    with pytest.raises(BadArguments) as caught:
        REGISTRY.require("read").parse({"limit": 0, "colour": "red"})

    assert set(caught.value.fields) == {"path", "limit", "colour"}


@pytest.mark.parametrize("tool", ["read", "ls", "write", "rm", "touch", "mkdir", "file_info"])
def test_a_path_that_climbs_out_is_a_violation(tool: str) -> None:
    with pytest.raises(PathOutsideMount):
        REGISTRY.require(tool).parse({"path": "/../etc/passwd", **({"content": ""} if tool == "write" else {})})


@pytest.mark.parametrize(
    ("tool", "arguments", "effects"),
    [
        ("read", {"path": "a"}, Effects(reads=(project("/a"),))),
        ("ls", {}, Effects(reads=(project("/"),))),
        ("file_info", {"path": "a"}, Effects(reads=(project("/a"),))),
        ("cat", {"paths": ["a", "b"]}, Effects(reads_batch=(project("/a"), project("/b")))),
        ("read_multiple_files", {"paths": ["a"]}, Effects(reads_batch=(project("/a"),))),
        ("write", {"path": "a", "content": ""}, Effects(writes=(project("/a"),))),
        ("rm", {"path": "a"}, Effects(writes=(project("/a"),))),
        ("touch", {"path": "a"}, Effects(writes=(project("/a"),))),
        ("mkdir", {"path": "a"}, Effects(writes=(project("/a"),))),
        (
            "edit",
            {"path": "a", "old_string": "x", "new_string": "y"},
            Effects(reads=(project("/a"),), writes=(project("/a"),)),
        ),
        (
            "mv",
            {"source": "/s/a", "destination": "/d"},
            Effects(writes=(project("/s/a"), project("/d"), project("/d/a"))),
        ),
        ("mv", {"source": "/s/a", "destination": "/"}, Effects(writes=(project("/s/a"), project("/a")))),
    ],
)
def test_the_declared_effects_of_a_call(tool: str, arguments: dict[str, Any], effects: Effects) -> None:
    found = REGISTRY.require(tool)

    assert found.effects(found.parse(arguments)) == effects


def test_ac2_tool_definitions_are_camel_case() -> None:
    result = BASH.definition().model_dump(by_alias=True)

    assert list(result) == ["name", "description", "inputSchema"]
    assert result["inputSchema"]["properties"].keys() == {"path"}
