"""The path syntax of `studio`: relative, `@central/…`, or absolute, which is mapped later."""

import pytest

from toolcrib.core.errors import BadArguments, PathOutsideMount
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.tools.dialects.studio_dialect import HostPath, parse_zone_path, paths_of


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a.txt", WorkspacePath(Mount.PROJECT, "/a.txt")),
        ("./src//a.txt", WorkspacePath(Mount.PROJECT, "/src/a.txt")),
        ("src/../a.txt", WorkspacePath(Mount.PROJECT, "/a.txt")),
        ("@project/a.txt", WorkspacePath(Mount.PROJECT, "/a.txt")),
        ("@central/plans/a.md", WorkspacePath(Mount.CENTRAL, "/plans/a.md")),
        ("@types/index.d.ts", WorkspacePath(Mount.PROJECT, "/@types/index.d.ts")),
        (" /srv/x ", HostPath("/srv/x")),
    ],
)
def test_what_a_path_means(text: str, path: WorkspacePath | HostPath) -> None:
    assert parse_zone_path(text) == path


@pytest.mark.parametrize(
    "text", ["../x", "a/../../x", "@state/x", "@pkg/x", "@central/../x", "/../x", "C:/x", "a\\b", "/a\0b"]
)
def test_a_path_outside_the_mounts_is_a_violation(text: str) -> None:
    with pytest.raises(PathOutsideMount, match="outside"):
        parse_zone_path(text)


def test_an_invalid_path_is_a_wrong_argument() -> None:
    for text in ("", " ", "a/" + "b" * 300, "/srv/\x01"):
        with pytest.raises(BadArguments):
            parse_zone_path(text)


def test_a_host_path_has_no_known_workspace_paths() -> None:
    assert paths_of(HostPath("/srv/x")) == ()
    assert paths_of(WorkspacePath(Mount.PROJECT, "/x")) == (WorkspacePath(Mount.PROJECT, "/x"),)


def test_a_path_is_formatted_in_the_input_syntax() -> None:
    assert WorkspacePath(Mount.PROJECT, "/a/b").relative == "a/b"
    assert WorkspacePath(Mount.PROJECT, "/").relative == "."
    assert WorkspacePath(Mount.CENTRAL, "/a").relative == "@central/a"
