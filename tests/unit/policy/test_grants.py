"""A grant covers what a person has approved and nothing else, however unusual the names are."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.unit.policy.builders import BASH, WRITE, Tool, agent, project
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import GrantId, SessionId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.paused_calls import Grant, GrantRule
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.grants import check_rule, find_grant, grant_covers, suggest_rules, ungranted_hosts

ODD = (
    "/a.txt", "/a b", "/a ", "/ a", "/!a", "/[ab]", "/*", "/**", "/a*b", "/?", "/#x", "/a\\b", "/a\\", "/\\*", "/a\\ ",
    "/x\ny", "/@project", "/@project/x", "/@central/a.txt", "/é", "/d/a.txt", "/d/**",
)  # fmt: skip


def exact_rule(*paths: WorkspacePath) -> GrantRule:
    """The suggested rule for exactly these paths."""
    suggested = suggest_rules(WRITE, Effects(writes=paths))
    [rule] = [rule for rule in suggested if rule.tools == ("write",)]
    return rule


def granting(*rules: GrantRule, **fields: Any) -> Caller:
    """An agent with these grants."""
    caller = agent(**fields)
    assert caller.agent is not None
    grants = tuple(Grant(GrantId(new_id()), rule) for rule in rules)
    return replace(caller, agent=replace(caller.agent, grants=grants))


def paths() -> list[WorkspacePath]:
    around = [WorkspacePath(Mount.PROJECT, path) for odd in ODD for path in (odd, f"{odd}/below", f"/above{odd}")]
    return [*around, *(WorkspacePath(mount, odd) for mount in (Mount.CENTRAL, Mount.STATE) for odd in ODD)]


def test_the_exact_rule_covers_that_one_path_and_no_other() -> None:
    rules = {path: exact_rule(path) for path in paths()}

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
    rule = GrantRule(("write",), paths=paths)

    assert grant_covers(rule, "write", Effects(writes=(WorkspacePath(Mount.PROJECT, path),))) is is_covered


def test_a_rule_without_a_mount_does_not_cover_other_mounts() -> None:
    state = WorkspacePath(Mount.STATE, "/notes.md", "agent")

    assert not grant_covers(GrantRule(("write",), paths=("**",)), "write", Effects(writes=(state,)))
    assert grant_covers(GrantRule(("write",), paths=("@state/*.md",)), "write", Effects(writes=(state,)))


def test_every_path_that_a_call_touches_must_be_covered() -> None:
    source, destination, other = (WorkspacePath(Mount.PROJECT, path) for path in ("/a", "/b", "/c"))
    rule = exact_rule(source, destination)

    assert grant_covers(rule, "write", Effects(writes=(source, destination)))
    assert not grant_covers(rule, "write", Effects(writes=(source, other)))
    assert not grant_covers(rule, "write", Effects(writes=(other, destination)))
    assert not grant_covers(rule, "write", Effects(writes=(source,), reads=(other,)))
    assert not grant_covers(rule, "write", Effects())


def test_a_folder_or_all_edits_are_suggested_beside_the_file() -> None:
    folder, exact, anywhere = suggest_rules(WRITE, Effects(writes=(project("/src/a b/x.py"),)))

    assert folder == GrantRule(("write", "edit", "touch", "mkdir"), paths=("@project/src/a\\ b/**",))
    assert exact == GrantRule(("write",), paths=("@project/src/a\\ b/x.py",))
    assert anywhere == GrantRule(("write", "edit", "touch", "mkdir", "mv", "rm"))
    for tool, path, is_covered in (
        ("write", "/src/a b/x.py", True),
        ("edit", "/src/a b/c/y.py", True),
        ("edit", "/src/y.py", False),
        ("rm", "/src/a b/x.py", False),
    ):
        assert grant_covers(folder, tool, Effects(writes=(project(path),))) is is_covered
    assert grant_covers(anywhere, "rm", Effects(writes=(project("/elsewhere"),)))
    assert not grant_covers(anywhere, "bash", Effects(command="ls"))


def test_a_file_at_the_root_is_suggested_alone_because_its_folder_is_everything() -> None:
    exact, anywhere = suggest_rules(WRITE, Effects(writes=(project("/a.txt"),)))

    assert exact.paths == ("@project/a.txt",)
    assert anywhere.paths is None


def test_a_command_of_another_tool_is_covered_only_if_identical() -> None:
    [rule] = suggest_rules(WRITE, Effects(command="make test"))

    assert rule == GrantRule(("write",), commands=("make test",))
    for other in ("make test; rm -rf .", "make  test", "make test\n", "make", None):
        assert not grant_covers(rule, "write", Effects(command=other))
    assert not grant_covers(GrantRule(("write",)), "write", Effects(command="make test")), "no rule is for any command"
    pattern = GrantRule(("write",), commands=("make *",))
    assert not grant_covers(pattern, "write", Effects(command="make test")), "only a shell has patterns"
    with pytest.raises(BadArguments):
        check_rule(GrantRule(("write",)), WRITE, Effects(command="make test"))


def test_grants_cover_the_parts_of_a_command_together() -> None:
    some, more = ("git diff *",), ("make test", "cd web")
    caller = granting(GrantRule(("bash",), commands=some), GrantRule(("bash",), commands=more))
    assert caller.agent is not None
    first, second = caller.agent.grants

    assert find_grant(caller, BASH, Effects(command="git diff --stat && make test")) == first
    assert find_grant(caller, BASH, Effects(command="cd web && make test")) == second
    assert find_grant(caller, BASH, Effects(command="git diff && make test && rm x")) is None
    assert find_grant(caller, BASH, Effects(command="git diff && make tests")) is None
    assert find_grant(caller, BASH, Effects(command="git diff > x && make test")) is None


def test_a_grant_of_another_session_does_not_take_part() -> None:
    caller = granting(GrantRule(("bash",), commands=("git diff *",)))
    assert caller.agent is not None
    grants = (replace(caller.agent.grants[0], session_id=SessionId(new_id())),)
    caller = replace(caller, agent=replace(caller.agent, grants=grants))

    assert find_grant(caller, BASH, Effects(command="git diff")) is None


@pytest.mark.parametrize(
    ("rules", "command", "hosts", "missing"),
    [
        ((), "curl x", (), ()),
        ((), "curl x", ("a.org",), ("a.org",)),
        ((GrantRule(("bash",), hosts=("a.org",)),), "curl x", ("a.org", "a.org:443", "b.org"), ("b.org",)),
        ((GrantRule(("bash",), hosts=("a.org",)),), "curl x", ("a.org:22", "x.a.org"), ("a.org:22", "x.a.org")),
        ((GrantRule(("bash",), hosts=("*.a.org",)),), "curl x", ("x.a.org", "*.a.org", "a.org"), ("a.org",)),
        ((GrantRule(("bash",), hosts=("A.org:8080",)),), "curl x", ("a.org:8080", "a.org"), ("a.org",)),
        ((GrantRule(("bash",), commands=("curl *",), hosts=("a.org",)),), "curl x", ("a.org",), ()),
        ((GrantRule(("bash",), commands=("wget *",), hosts=("a.org",)),), "curl x", ("a.org",), ("a.org",)),
        ((GrantRule(("bash_start",), hosts=("a.org",)),), "curl x", ("a.org",), ("a.org",)),
        # What one rule lets read must not be sent where another rule lets something else be sent.
        (
            (GrantRule(("bash",), commands=("curl *",), hosts=("a.org",)), GrantRule(("bash",), commands=("cat *",))),
            "cat x | curl -d @- a.org",
            ("a.org",),
            ("a.org",),
        ),
    ],
)  # fmt: skip
def test_hosts_need_a_grant_that_covers_them_and_the_whole_command(
    rules: tuple[GrantRule, ...], command: str, hosts: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    assert ungranted_hosts(granting(*rules), BASH, Effects(command=command, hosts=hosts)) == missing


def test_a_rule_about_hosts_covers_no_command() -> None:
    caller = granting(GrantRule(("bash",), hosts=("a.org",)))

    assert find_grant(caller, BASH, Effects(command="curl a.org", hosts=("a.org",))) is None


@pytest.mark.parametrize(
    ("globs", "arguments", "is_covered"),
    [
        ({"repo": "acme/*"}, {"repo": "acme/site", "title": "x"}, True),
        ({"repo": "acme/*"}, {"repo": "evil/acme/x"}, False),
        ({"repo": "acme/*"}, {"title": "acme/site"}, False),
        ({"repo": "acme/*", "title": "?"}, {"repo": "acme/a", "title": "xx"}, False),
        ({"count": "1"}, {"count": 1}, False),
        ({"repo": "*"}, {"repo": "x" * 20_000}, False),
        (None, {"repo": "evil"}, True),
    ],
)
def test_arguments_must_be_texts_that_match(
    globs: dict[str, str] | None, arguments: dict[str, Any], *, is_covered: bool
) -> None:
    rule = GrantRule(("mcp:hub/create_issue",), hosts=("hub.example",), arguments=globs)
    effects = Effects(hosts=("hub.example",), arguments=arguments)

    assert grant_covers(rule, "mcp:hub/create_issue", effects) is is_covered


GITHUB = Tool("mcp:hub/create_issue", Danger.DANGEROUS, "mcp:hub", ToolCategory.MCP)
GIVEN = Effects(command="mcp:hub", hosts=("api.hub.example",), arguments={}, access=("secret:TOKEN", "workspace:read"))


@pytest.mark.parametrize(
    ("later", "is_covered"),
    [
        (GIVEN, True),
        (replace(GIVEN, hosts=("api.hub.example", "evil.example")), False),
        (replace(GIVEN, hosts=("*.hub.example",)), False),
        (replace(GIVEN, access=(*GIVEN.access, "secret:ADMIN_TOKEN")), False),
        (replace(GIVEN, access=(*GIVEN.access, "workspace:write")), False),
        (replace(GIVEN, hosts=(), access=("secret:TOKEN",)), True),
    ],
)
def test_a_grant_does_not_cover_what_an_mcp_server_is_given_later(later: Effects, *, is_covered: bool) -> None:
    [suggested] = suggest_rules(GITHUB, GIVEN)
    check_rule(suggested, GITHUB, GIVEN)

    assert (suggested.hosts, suggested.access) == (GIVEN.hosts, GIVEN.access), "the person sees all that it covers"
    assert (find_grant(granting(suggested), GITHUB, later) is not None) is is_covered


def test_a_grant_for_the_url_of_an_mcp_server_names_its_address_and_its_headers() -> None:
    effects = Effects(hosts=("10.0.0.7:8080",), arguments={}, access=("secret:Authorization",))
    [suggested] = suggest_rules(GITHUB, effects)
    check_rule(suggested, GITHUB, effects)

    assert grant_covers(suggested, GITHUB.name, effects)
    assert not grant_covers(suggested, GITHUB.name, replace(effects, hosts=("10.0.0.8:8080",)))
    assert not grant_covers(suggested, GITHUB.name, replace(effects, access=("secret:Authorization", "secret:X-Key")))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"hosts": None}, "rule.hosts"),
        ({"access": ("secret:TOKEN",)}, "rule"),
        ({"access": (*GIVEN.access, "secret:ADMIN_TOKEN")}, "rule.access.2"),
        ({"commands": None}, "rule.commands"),
    ],
)
def test_a_rule_for_an_mcp_server_names_exactly_what_it_was_given(changed: dict[str, Any], field: str) -> None:
    [suggested] = suggest_rules(GITHUB, GIVEN)

    with pytest.raises(BadArguments) as refused:
        check_rule(replace(suggested, **changed), GITHUB, GIVEN)

    assert list(refused.value.fields) == [field]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (GrantRule(("write",)), "rule.tools"),
        (GrantRule(("bash",)), "rule.commands"),
        (GrantRule(("bash",), commands=("python3 *",)), "rule.commands.0"),
        (GrantRule(("bash",), commands=("git diff *", "git *")), "rule.commands.1"),
        (GrantRule(("bash",), commands=("git diff *", "x; y *")), "rule.commands.1"),
        (GrantRule(("bash",), commands=("git log *",)), "rule"),
        (GrantRule(("bash",), commands=("git diff *",), hosts=("http://x",)), "rule.hosts.0"),
        (GrantRule(("bash",), commands=("git diff *",), paths=("#",)), "rule.paths.0"),
        (GrantRule(("bash",), commands=("git diff *",), arguments={"command": "*"}), "rule.arguments.command"),
    ],
)
def test_a_wrong_rule_is_refused_by_its_field(rule: GrantRule, field: str) -> None:
    with pytest.raises(BadArguments) as refused:
        check_rule(rule, BASH, Effects(command="git diff"))

    assert list(refused.value.fields) == [field]


def test_a_rule_must_allow_the_hosts_that_the_call_contacts() -> None:
    effects = Effects(command="pip install x", hosts=("pypi.org",))

    with pytest.raises(BadArguments) as refused:
        check_rule(GrantRule(("bash",), commands=("pip install *",)), BASH, effects)
    assert list(refused.value.fields) == ["rule.hosts"]
    check_rule(GrantRule(("bash",), commands=("pip install *",), hosts=("pypi.org",)), BASH, effects)
    check_rule(GrantRule(("bash",), hosts=("pypi.org",)), BASH, effects)
