"""A grant covers what a person has approved and nothing else, however unusual the names are."""

from itertools import product

import pytest

from tests.unit.policy.builders import WRITE
from toolcrib.core.approvals import GrantRule
from toolcrib.core.errors import BadArguments
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.grants import check_rule, grant_covers, suggest_rule

ODD = (
    "/a.txt", "/a b", "/a ", "/ a", "/!a", "/[ab]", "/*", "/**", "/a*b", "/?", "/#x", "/a\\b", "/a\\", "/\\*", "/a\\ ",
    "/x\ny", "/@project", "/@project/x", "/@central/a.txt", "/é", "/d/a.txt", "/d/**",
)  # fmt: skip


class Writer:
    name = "write"
    danger = Danger.DANGEROUS
    toolset = "workspace"
    category = ToolCategory.FILE
    drafts = False


def paths() -> list[WorkspacePath]:
    around = [WorkspacePath(Mount.PROJECT, path) for odd in ODD for path in (odd, f"{odd}/below", f"/above{odd}")]
    return [*around, *(WorkspacePath(mount, odd) for mount in (Mount.CENTRAL, Mount.STATE) for odd in ODD)]


@pytest.mark.req("HU-1", part="a grant is as narrow as it was seen")
def test_the_suggested_rule_covers_that_one_path_and_no_other() -> None:
    rules = {path: suggest_rule(Writer(), Effects(writes=(path,))) for path in paths()}

    wider = [
        (rules[asked].paths, other)
        for asked, other in product(paths(), repeat=2)
        if grant_covers(rules[asked], "write", Effects(writes=(other,))) != (asked == other)
    ]

    assert wider == []


@pytest.mark.parametrize(
    ("paths", "path", "is_covered"),
    [
        (("docs/**",), "/docs/a/b.md", True),
        (("docs/**",), "/src/docs.md", False),
        (("*.txt",), "/d/a.txt", True),
        (("@project/*.txt",), "/a.txt", True),
        (("@project/*.txt",), "/d/a.txt", False),
        (("src/**", "!src/s/**"), "/src/s/x", False),
        (("src/**", "!src/secret.txt"), "/src/secret.txt", False),
        (("!src/secret.txt", "src/**"), "/src/secret.txt", False),
        (("@project/src/**", "!@project/src/s"), "/src/s", False),
        (("@project/a", "!@project/a"), "/a", False),
        (("@central/**",), "/a", False),
        (("@project/d/",), "/d/a", True),
        ((), "/a", False),
    ],
)
def test_a_rule_that_a_person_widened_is_matched_like_globs(
    paths: tuple[str, ...], path: str, *, is_covered: bool
) -> None:
    rule = GrantRule("write", paths=paths)

    assert grant_covers(rule, "write", Effects(writes=(WorkspacePath(Mount.PROJECT, path),))) is is_covered


def test_a_rule_without_a_mount_does_not_cover_other_mounts() -> None:
    state = WorkspacePath(Mount.STATE, "/notes.md", "agent")

    assert not grant_covers(GrantRule("write", paths=("**",)), "write", Effects(writes=(state,)))
    assert grant_covers(GrantRule("write", paths=("@state/*.md",)), "write", Effects(writes=(state,)))


def test_every_path_that_a_call_touches_must_be_covered() -> None:
    source, destination, other = (WorkspacePath(Mount.PROJECT, path) for path in ("/a", "/b", "/c"))
    rule = suggest_rule(Writer(), Effects(writes=(source, destination)))

    assert grant_covers(rule, "write", Effects(writes=(source, destination)))
    assert not grant_covers(rule, "write", Effects(writes=(source, other)))
    assert not grant_covers(rule, "write", Effects(writes=(other, destination)))
    assert not grant_covers(rule, "write", Effects(writes=(source,), reads=(other,)))
    assert not grant_covers(rule, "write", Effects())


def test_a_command_is_covered_only_if_identical() -> None:
    rule = suggest_rule(Writer(), Effects(command="make test"))

    assert rule == GrantRule("write", commands=("make test",))
    for other in ("make test; rm -rf .", "make  test", "make test\n", "make", None):
        assert not grant_covers(rule, "write", Effects(command=other))
    assert not grant_covers(GrantRule("write"), "write", Effects(command="make test")), "no rule is for any command"
    with pytest.raises(BadArguments):
        check_rule(GrantRule("write"), WRITE, Effects(command="make test"))
