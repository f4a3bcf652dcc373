"""Cases 1 to 16 and 24: paths that try to leave the mount, or are malformed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from toolcrib.core.errors import BadArguments, NotFound, PathOutsideMount, ReadOnlyMount
from toolcrib.core.paths import (
    AbsolutePath,
    Mount,
    MountPath,
    RelativePath,
    WorkspacePath,
    parse_absolute,
    parse_mounted,
    parse_relative,
)
from toolcrib.workspace.fs.mount_writer import MountWriter

# How each dialect writes a path that is relative to the project.
LANGUAGES = pytest.mark.parametrize(
    ("parse", "prefix"),
    [(parse_absolute, "/"), (parse_mounted, "@project/"), (parse_relative, "")],
    ids=["absolute", "mounted", "relative"],
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a secret beside it, and a sibling folder whose name has the same prefix."""
    for name in ("ws", "ws-evil", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_bytes(name.encode())
    return tmp_path / "ws"


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def disk(request: pytest.FixtureRequest, root: Path) -> Iterator[MountWriter]:
    with MountWriter(root, openat2=request.param) as disk:
        yield disk


@LANGUAGES
@pytest.mark.parametrize("climb", ["../outside/secret", "..", "../", ".//../x", "./../x"])
def test_case_01_dot_dot(parse: type, prefix: str, climb: str) -> None:
    with pytest.raises(PathOutsideMount):
        parse(prefix + climb)


@LANGUAGES
@pytest.mark.parametrize("climb", ["a/../../x", "a/b/../../../x", "a/./.././../x", "a//..//../x"])
def test_case_02_dot_dot_after_a_folder(parse: type, prefix: str, climb: str) -> None:
    with pytest.raises(PathOutsideMount):
        parse(prefix + climb)


def test_case_03_absolute_path(disk: MountWriter) -> None:
    for parse in (parse_mounted, parse_relative):
        with pytest.raises(PathOutsideMount):
            parse("/etc/passwd")

    with pytest.raises(NotFound):
        disk.read(parse_absolute("/etc/passwd"), limit=1 << 20)


@LANGUAGES
@pytest.mark.parametrize("text", ["..\\x", "..\\..\\outside\\secret", "a\\b", "\\\\server\\share", "\\x"])
def test_case_04_backslash(parse: type, prefix: str, text: str) -> None:
    with pytest.raises(PathOutsideMount):
        parse(prefix + text)


@LANGUAGES
@pytest.mark.parametrize("text", ["C:\\x", "C:/x", "c:", "z:/"])
def test_case_05_drive_letter(parse: type, prefix: str, text: str) -> None:
    with pytest.raises(PathOutsideMount):
        parse(prefix + text)


@LANGUAGES
@pytest.mark.parametrize("text", ["secret\0.png", "\0", "a/\0/b", "x\0"])
def test_case_06_nul_byte(parse: type, prefix: str, text: str) -> None:
    with pytest.raises(PathOutsideMount):
        parse(prefix + text)


@pytest.mark.parametrize("parse", [parse_absolute, parse_mounted, parse_relative])
def test_case_07_empty_path(parse: type) -> None:
    for text in ("", " ", "\n"):
        with pytest.raises(BadArguments):
            parse(text)


def test_case_07_dot_is_the_root_which_cannot_be_read(disk: MountWriter) -> None:
    for path in (parse_absolute("."), parse_mounted("@project/."), parse_relative(".")):
        assert path.is_root
        with pytest.raises(BadArguments):
            disk.read(path, limit=9)


@LANGUAGES
@pytest.mark.parametrize("text", ["%2e%2e/outside/secret", "%2e%2e%2foutside", "..%2fsecret", "%00"])
def test_case_08_percent_is_literal(parse: type, prefix: str, text: str, disk: MountWriter) -> None:
    path = parse(prefix + text)

    assert path.path == f"/{text}"
    assert disk.stat(path) is None


@LANGUAGES
@pytest.mark.parametrize("text", ["~", "~/secret", "~root/x", "$HOME/x"])
def test_case_09_tilde_is_literal(parse: type, prefix: str, text: str, disk: MountWriter) -> None:
    path = parse(prefix + text)

    assert path.path == f"/{text}"
    assert disk.stat(path) is None


def test_case_10_sibling_with_the_same_prefix(disk: MountWriter, root: Path) -> None:
    with pytest.raises(PathOutsideMount):
        parse_absolute("/../ws-evil/secret")

    (root / "near").symlink_to("../ws-evil")
    with pytest.raises(PathOutsideMount):
        disk.read(parse_absolute("/near/secret"), limit=99)


@pytest.mark.parametrize("text", ["@foo/x", "@", "@/x", "@PROJECT/x", "@project@pkg/x", "@projec/x", "@..//x"])
def test_case_11_unknown_mount(text: str) -> None:
    with pytest.raises(PathOutsideMount):
        parse_mounted(text)


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_case_12_write_to_pkg(root: Path, openat2: bool) -> None:
    path = parse_mounted("@pkg/secret")
    new = parse_mounted("@pkg/new/x")
    with MountWriter(root, writable=False, openat2=openat2) as disk:
        for act in (
            lambda: disk.write(path, b"x", mode=0o644),
            lambda: disk.write(new, b"x", mode=0o644),
            lambda: disk.make_folder(new, mode=0o755),
            lambda: disk.make_link(new, "secret"),
            lambda: disk.rename(path, new),
            lambda: disk.set_mode(path, 0o777),
            lambda: disk.set_times(path),
            lambda: disk.remove(path),
            lambda: disk.sweep(WorkspacePath(Mount.PKG, "/")),
        ):
            with pytest.raises(ReadOnlyMount):
                act()

        assert disk.read(path, limit=99)[0] == b"ws"
        assert [entry.name for entry in disk.entries(WorkspacePath(Mount.PKG, "/"))] == ["secret"]


@LANGUAGES
@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "日" * 86])
def test_case_13_name_of_256_bytes(parse: type, prefix: str, name: str) -> None:
    with pytest.raises(BadArguments):
        parse(prefix + name)


@LANGUAGES
def test_case_14_seventy_deep(parse: type, prefix: str) -> None:
    with pytest.raises(BadArguments):
        parse(prefix + "/".join("a" * 70))


@LANGUAGES
@pytest.mark.parametrize("text", ["\ud800", "a/\udcff/b", "x\udc80"])
def test_case_15_lone_surrogate(parse: type, prefix: str, text: str) -> None:
    with pytest.raises(BadArguments):
        parse(prefix + text)


@LANGUAGES
@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2Jb", "a\rb", "a\tb", "a\x7fb", "a\x9bb", "\x01/x"])
def test_case_16_control_character(parse: type, prefix: str, text: str) -> None:
    with pytest.raises(BadArguments) as refused:
        parse(prefix + text)

    assert refused.value.fields["path"].isprintable()


@pytest.mark.parametrize("value", [None, 1, True, 1.5, b"/x", ["/x"], {"path": "/x"}, ("/", "x")])
@pytest.mark.parametrize("kind", [AbsolutePath, MountPath, RelativePath], ids=["absolute", "mounted", "relative"])
def test_case_24_path_that_is_not_a_string(kind: type[WorkspacePath], value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)
