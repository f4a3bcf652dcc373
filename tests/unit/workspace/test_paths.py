"""The path syntaxes: what each accepts, what it rejects, and how."""

import pytest
from pydantic import BaseModel, Field, ValidationError

from toolcrib.core.errors import BadArguments, PathOutsideMount
from toolcrib.core.paths import (
    AbsolutePath,
    Mount,
    MountPath,
    RelativePath,
    WorkspacePath,
    is_valid_name,
    parse_absolute,
    parse_mounted,
    parse_relative,
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/", "/"),
        (".", "/"),
        ("/a", "/a"),
        ("a", "/a"),
        ("./a", "/a"),
        ("/a/", "/a"),
        ("//folder///file", "/folder/file"),
        ("  /a b/c \n", "/a b/c"),
        ("/a/./b/../c", "/a/c"),
        ("/a/..", "/"),
        ("/...", "/..."),
        ("/..a/b..", "/..a/b.."),
        ("/.env", "/.env"),
        ("/ä/日本語.txt", "/ä/日本語.txt"),
        ("/a:b", "/a:b"),
        ("/" + "x" * 255, "/" + "x" * 255),
        ("/a" * 64, "/a" * 64),
    ],
)
def test_an_absolute_path_is_normalised(text: str, path: str) -> None:
    assert parse_absolute(text) == WorkspacePath(Mount.PROJECT, path)


@pytest.mark.parametrize("text", ["..", "/..", "/../x", "a/../../x", "/a/b/../../../x", "./.."])
def test_climbing_above_the_root_is_outside_and_not_clamped(text: str) -> None:
    for parse in (parse_absolute, parse_relative):
        with pytest.raises(PathOutsideMount, match="outside"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("@project", WorkspacePath(Mount.PROJECT, "/")),
        ("@project/", WorkspacePath(Mount.PROJECT, "/")),
        ("@central/plan.md", WorkspacePath(Mount.CENTRAL, "/plan.md")),
        ("@pkg/a/b.txt", WorkspacePath(Mount.PKG, "/a/b.txt")),
        ("@state//logs/./x/", WorkspacePath(Mount.STATE, "/logs/x")),
        (" @project/ü ", WorkspacePath(Mount.PROJECT, "/ü")),
        ("./@project/a", WorkspacePath(Mount.PROJECT, "/a")),
    ],
)
def test_a_mounted_path_names_its_mount(text: str, path: WorkspacePath) -> None:
    assert parse_mounted(text) == path


@pytest.mark.parametrize(
    "text",
    ["@", "@/x", "@foo/x", "@Project/x", "@project..", "@projectx/y", "src/x", "/etc/passwd", "/@project/x"],
)
def test_a_path_without_a_known_mount_is_outside(text: str) -> None:
    with pytest.raises(PathOutsideMount, match="has no mount"):
        parse_mounted(text)


@pytest.mark.parametrize("text", ["@project/..", "@project/a/../b", "@project/../pkg/x"])
def test_a_mounted_path_accepts_no_dot_dot_wherever_it_leads(text: str) -> None:
    with pytest.raises(PathOutsideMount, match="outside"):
        parse_mounted(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [("src/a.py", "/src/a.py"), (".", "/"), ("./a//b/", "/a/b"), ("a/../b", "/b"), (" a ", "/a")],
)
def test_a_relative_path_is_relative_to_the_project(text: str, path: str) -> None:
    assert parse_relative(text) == WorkspacePath(Mount.PROJECT, path)


@pytest.mark.parametrize("text", ["/", "/src/a.py", " /x", "//x"])
def test_an_absolute_path_is_outside_where_relative_ones_are_expected(text: str) -> None:
    with pytest.raises(PathOutsideMount, match="outside"):
        parse_relative(text)


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
@pytest.mark.parametrize("parse", [parse_absolute, parse_mounted, parse_relative])
def test_an_empty_path_is_a_bad_argument(parse: type, text: str) -> None:
    with pytest.raises(BadArguments) as refused:
        parse(text)

    assert set(refused.value.fields) == {"path"}


@pytest.mark.parametrize("text", ["/.", "/./", "//", "/a/b", "/a b", "/%2e%2e", "/~", "/ü", "/a:b"])
def test_a_parsed_path_parses_to_itself(text: str) -> None:
    path = parse_absolute(text)

    assert parse_absolute(path.display) == path
    assert parse_mounted(str(path)) == path


def test_a_path_longer_than_path_max_is_a_bad_argument() -> None:
    with pytest.raises(BadArguments):
        parse_absolute(("/" + "x" * 250) * 20)


def test_a_path_is_shown_alone_or_with_its_mount() -> None:
    assert WorkspacePath(Mount.PROJECT, "/a").display == "/a"
    assert WorkspacePath(Mount.PKG, "/a").display == "@pkg/a"


def test_a_message_about_a_path_is_short_and_printable() -> None:
    with pytest.raises(PathOutsideMount) as refused:
        parse_absolute("/\x1b[31m\0" + "x" * 4000)

    assert len(refused.value.message) < 250
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    ("name", "sayable"),
    [("a.txt", True), ("日本", True), ("a\nb", False), ("a\\b", False), (" a", False), ("\udcff", False)],
)
def test_a_name_on_disk_is_valid_if_a_path_can_contain_it(name: str, sayable: bool) -> None:
    assert is_valid_name(name) is sayable


class Copy(BaseModel):
    source: AbsolutePath = Field(description="What to copy.")
    others: list[RelativePath] = []
    into: MountPath = WorkspacePath(Mount.STATE, "/")


def test_arguments_become_paths_and_serialize_to_text() -> None:
    copy = Copy.model_validate({"source": "a/./b", "others": ["c", "."], "into": "@central/d"})

    assert copy.source == WorkspacePath(Mount.PROJECT, "/a/b")
    assert copy.model_dump(mode="json") == {"source": "/a/b", "others": ["c", "."], "into": "@central/d"}
    assert Copy.model_validate(copy.model_dump()) == copy


def test_the_schema_of_a_path_is_a_described_string() -> None:
    properties = Copy.model_json_schema()["properties"]

    assert properties["source"] == {"description": "What to copy.", "title": "Source", "type": "string"}
    assert properties["others"]["items"]["type"] == "string"
    assert properties["into"]["type"] == "string"


def test_an_error_names_the_field_that_has_it() -> None:
    with pytest.raises(ValidationError) as refused:
        Copy.model_validate({"source": "a\nb", "others": ["c", "x" * 256]})

    assert [error["loc"] for error in refused.value.errors()] == [("source",), ("others", 1)]


def test_a_violation_passes_through_validation() -> None:
    with pytest.raises(PathOutsideMount):
        Copy.model_validate({"source": "/../x"})
