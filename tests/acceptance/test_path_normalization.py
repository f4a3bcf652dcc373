"""Path normalization, the same in every tool, and paths outside the workspace."""

from typing import Any

import pytest

from tests.acceptance.shapes import Says, refused
from tests.acceptance.workspace import Workspace

SPELLINGS = [
    pytest.param("/folder/file", id="as it is"),
    pytest.param("  /folder/file \n", id="whitespace around is trimmed"),
    pytest.param("//folder///file", id="slashes are collapsed"),
    pytest.param("/./folder/././file", id="a single dot is the folder itself"),
    pytest.param("/folder/sub/../file", id="two dots are the folder above"),
    pytest.param("/other/../folder/x/y/../../file", id="several two dots"),
    pytest.param("folder/file", id="the leading slash may be missing"),
    pytest.param("./folder/file", id="relative to the root"),
    pytest.param("/folder/file/", id="the trailing slash is dropped"),
    pytest.param(" //./folder//x/..//file/. ", id="all at once"),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_is_found_however_its_path_is_spelt(workspace: Workspace, spelling: str) -> None:
    workspace.write("/folder/file", "x")

    for tool in ("read", "file_info"):
        assert workspace.result(tool, path=spelling)["path"] == "/folder/file"
    for tool in ("cat", "read_multiple_files"):
        [file] = workspace.result(tool, paths=[spelling])["files"]
        assert (file["path"], file["content"]) == ("/folder/file", "x")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_is_changed_however_its_path_is_spelt(workspace: Workspace, spelling: str) -> None:
    assert workspace.result("write", path=spelling, content="one")["path"] == "/folder/file"
    assert workspace.result("edit", path=spelling, old_string="one", new_string="two")["path"] == "/folder/file"
    assert workspace.result("touch", path=spelling)["path"] == "/folder/file"
    assert workspace.names(recursive=True) == ["/folder", "/folder/file"]
    assert workspace.on_disk("/folder/file").read_text() == "two"
    assert workspace.result("mv", source=spelling, destination="/b")["from_path"] == "/folder/file"
    assert workspace.result("mkdir", path=spelling)["path"] == "/folder/file"
    assert workspace.result("ls", path=spelling) == {"path": "/folder/file", "entries": []}
    assert workspace.result("rm", path=spelling)["path"] == "/folder/file"


@pytest.mark.parametrize("spelling", ["/", "//", ".", "./", "/.", " / ", "/a/..", "a/../"])
def test_the_root_is_a_slash(workspace: Workspace, spelling: str) -> None:
    assert workspace.result("ls", path=spelling)["path"] == "/"


@pytest.mark.parametrize("destination", ["/archive/", " archive// ", "/archive/.", "/x/../archive/"])
def test_the_destination_of_a_move_is_normalised(workspace: Workspace, destination: str) -> None:
    workspace.write("/file.txt", "x")
    workspace.result("mkdir", path="/archive")

    assert workspace.result("mv", source="file.txt", destination=destination)["to_path"] == "/archive/file.txt"


@pytest.mark.parametrize("name", ["...", "~", "%2e%2e", "$HOME", "a b", ".hidden", "-rf", "*", "ü漢🗄", "@project"])
def test_an_unusual_name_is_only_a_name(workspace: Workspace, name: str) -> None:
    result = workspace.write(f"/folder/{name}", "x")

    assert result["path"] == f"/folder/{name}"
    assert workspace.on_disk(f"/folder/{name}").read_text() == "x"
    assert workspace.names(path="/folder") == [f"/folder/{name}"]


ABOVE_THE_ROOT = ["..", "/..", "/../x", "../x", "/a/../../x", "/a/b/../../../etc/passwd", " ../x", "/./../x", "//../x"]


@pytest.mark.parametrize("path", ABOVE_THE_ROOT)
def test_dots_that_climb_above_the_root_are_rejected_and_not_clamped(workspace: Workspace, path: str) -> None:
    workspace.write("/x", "inside")

    refused(workspace.call("read", path=path), 400, "VALIDATION_ERROR", Says("outside the workspace", "above the root"))


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("ls", {"path": "/../x"}),
        ("read", {"path": "/../x"}),
        ("write", {"path": "/../x", "content": ""}),
        ("rm", {"path": "/../x"}),
        ("mv", {"source": "/../x", "destination": "/y"}),
        ("mv", {"source": "/x", "destination": "/../y"}),
        ("mv", {"source": "/x", "destination": "/../"}),
        ("touch", {"path": "/../x"}),
        ("mkdir", {"path": "/../x"}),
        ("edit", {"path": "/../x", "old_string": "a", "new_string": "b"}),
        ("cat", {"paths": ["/x", "/../x"]}),
        ("file_info", {"path": "/../x"}),
        ("read_multiple_files", {"paths": ["/x", "/../x"]}),
    ],
)
def test_no_tool_climbs_above_the_root(workspace: Workspace, tool: str, args: dict[str, Any]) -> None:
    workspace.write("/x", "inside")
    beside = workspace.project.parent / "x"

    refused(workspace.call(tool, **args), 400, "VALIDATION_ERROR", Says("above the root"))
    assert not beside.exists()
    assert workspace.on_disk("/x").read_text() == "inside"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/a\0b", "NUL"),
        ("\0", "NUL"),
        ("/a\\b", "backslash"),
        ("..\\x", "backslash"),
        ("C:/x", "drive"),
        ("c:", "drive"),
    ],
)
def test_a_path_of_another_file_system_is_outside(workspace: Workspace, path: str, reason: str) -> None:
    for tool in ("read", "touch"):
        refused(workspace.call(tool, path=path), 400, "VALIDATION_ERROR", Says("outside the workspace", reason))
    assert workspace.names() == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        (" \t\n", "empty"),
        ("/a\nb", "control character"),
        ("/a\x1b[31mb", "control character"),
        ("/a\x7f", "control character"),
        ("/a\x85b", "control character"),
        (f"/{'x' * 256}", "256 bytes"),
        (f"/{'ü' * 128}", "256 bytes"),
        ("/x" * 65, "65 directories deep"),
        (f"/{'y' * 250}" * 17, "bytes"),
    ],
)
def test_an_invalid_file_name_is_rejected(workspace: Workspace, path: str, reason: str) -> None:
    for tool in ("read", "touch"):
        response = workspace.call(tool, path=path)
        refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says(reason)})
    assert workspace.names() == []


@pytest.mark.parametrize("path", [f"/{'x' * 255}", f"/{'ü' * 127}", "/x" * 64])
def test_the_longest_names_are_accepted(workspace: Workspace, path: str) -> None:
    workspace.write(path, "x")

    assert workspace.result("read", path=path)["content"] == "x"
