"""Which commands the entries of a grant cover, and which entries are suggested."""

import pytest

from toolcrib.core.paused_calls import GrantRule
from toolcrib.core.tool_calls import Effects
from toolcrib.policy.command_patterns import entry_flaw, suggested_entries
from toolcrib.policy.grants import grant_covers


def covers(entries: tuple[str, ...], command: str) -> bool:
    return grant_covers(GrantRule(("bash",), commands=entries), "bash", Effects(command=command))


@pytest.mark.parametrize(
    "command",
    [
        "git diff", "git diff --stat", "git diff -- 'a b' *.py", "  git   diff\n", "git 'diff'", "g\\it diff",
        "git diff 2>&1", "git diff | cat", "git diff && git diff HEAD~1", "git diff;cat x",
        "git diff\ncat <x".replace("<x", ""), "git diff # rm -rf /", "git diff '$(rm x)'", "git diff \\$x",
        "git diff >/dev/null || cat",
    ],
)  # fmt: skip
def test_a_pattern_covers_commands_that_begin_with_its_words(command: str) -> None:
    assert covers(("git diff *", "cat *"), command)


@pytest.mark.parametrize(
    "command",
    [
        "git", "git diffx", "git diff-tree", "gitdiff", "git 'diff x'", "git  'diff '", "GIT diff", "./git diff",
        "/usr/bin/git diff", "git -c core.pager=x diff", "git -C x diff", "git --exec-path=x diff",
        "git diff; rm -rf /", "git diff && rm x", "git diff || rm x", "git diff | sh", "git diff | bash -s",
        "git diff & rm x", "git diff &", "git diff\nrm x", "git diff\n\nrm x", "git diff $(rm x)", "git diff `rm x`",
        'git diff "$(rm x)"', "git diff $x", "git diff ${x}", "git diff > x", "git diff >x", "git diff >> x",
        "git diff 2> x", "git diff < x", "git diff <(rm x)", "git diff <<E\n$(rm x)\nE", "git diff >| x",
        "git diff &> x", "(git diff)", "{ git diff; }", "! git diff", "GIT_PAGER=x git diff", "env git diff",
        "env GIT_EXTERNAL_DIFF=x git diff", "xargs git diff", "eval git diff", "command git diff", "exec git diff",
        "sudo git diff", "time git diff", "nohup git diff", "sh -c 'git diff'", "if git diff; then rm x; fi",
        "git() { rm x; }; git diff", "alias git=rm; git diff", "alias git=rm\ngit diff", "export PATH=.; git diff",
        "PATH=.; git diff", "cd x; git diff", "git d*", "{git,diff}", "$x diff", "git $'diff'", "git diff \\",
        "git diff 'x", 'git diff "x', "git\tdiff;\trm x", "git diff;# x\nrm x", "git diff \\\n; rm x",
        "git diff\r\nrm x", "git diff \x00; rm x", "trap 'rm x' EXIT; git diff", "set -- x; git diff",
        ". ./x; git diff", "printf -v PATH . && git diff", "git\u00a0diff", "git\u2003diff", "\uff47it diff",
    ],
)  # fmt: skip
def test_a_pattern_covers_nothing_else(command: str) -> None:
    assert not covers(("git diff *", "cat *"), command)


def test_an_exact_entry_covers_its_text_and_the_same_words() -> None:
    assert covers(("make test",), "make  'test'")
    assert covers(("make test", "ls"), "make test && ls")
    assert covers(("echo $(date)",), "echo $(date)")
    assert not covers(("echo $(date)",), "echo $(date) ")
    assert not covers(("make test",), "make test -k")
    assert not covers(("make test && ls",), "ls && make test")
    # Alone it runs nothing. After a pipe it runs what it reads.
    for interpreter in ("sh", "python3", "bash -s", "node -", "xargs", "sh /dev/stdin", "env sh"):
        assert covers((interpreter,), interpreter)
        assert not covers((interpreter, "cat *"), f"cat x | {interpreter}")


@pytest.mark.parametrize(
    ("command", "entries"),
    [
        ("git commit -am 'x y'", ("git commit *",)),
        ("git --no-pager log -3", ("git --no-pager log *",)),
        ("git stash pop", ("git stash pop *",)),
        ("git -C x diff", ("git -C x diff",)),
        ("python3 -m unittest -v tests", ("python3 -m unittest *",)),
        ("python3 manage.py migrate", ("python3 manage.py *",)),
        ("npm run build -- --x", ("npm run build *",)),
        ("npm test", ("npm test *",)),
        ("uv run pytest -q", ("uv run pytest *",)),
        ("npx vitest run", ("npx vitest *",)),
        ("timeout 60 pytest -q", ("timeout 60 pytest *",)),
        ("pytest -q tests 2>&1 | tail -20", ("pytest *", "tail *")),
        ("cd web && npm test", ("cd web", "npm test *")),
        ("make", ("make",)),
        ("make test && make test X=1", ("make test *",)),
        ("rm -rf build", ("rm -rf build",)),
        ("find . -name '*.py' -delete", ("find . -name '*.py' -delete",)),
        ("'my tool' x", ("'my tool' *",)),
        ("./scripts/check a b", ("./scripts/check *",)),
        ("ls *.py", ("ls *",)),
    ],
)
def test_a_rule_of_useful_width_is_suggested(command: str, entries: tuple[str, ...]) -> None:
    assert suggested_entries(command) == entries
    assert covers(entries, command)
    assert all(entry_flaw(entry) is None for entry in entries)


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'print(1)'", "python3", "python3 -", "python3 -u x.py", "python3 -m pdb x.py", "python3.11 -c x",
        "/usr/bin/python3 -c x", "bash -c ls", "sh -c ls", "sh", "node -e x", "perl -e x", "ruby -e x", "php -r x",
        "env A=b pytest", "/usr/bin/env pytest", "xargs rm", "sudo ls", "uv run python -c x", "npx -y x",
        "timeout 60 sh -c x", "nohup sh", "awk '{system(\"ls\")}'", "deno eval x", "git diff > x", "echo $x", "rm *",
        "ls; sh -c x", "python3 /dev/stdin", "nice pytest",
    ],
)  # fmt: skip
def test_for_arbitrary_code_only_the_exact_command_is_suggested(command: str) -> None:
    assert suggested_entries(command) is None


@pytest.mark.parametrize(
    "entry",
    [
        "python3 *", "python3 -c *", "python3 -m *", "python3 -m pdb *", "bash *", "bash -c *", "sh -c *",
        "node -e *", "node *", "env *", "env A=b pytest *", "xargs *", "sudo *", "git *", "git -c *",
        "git --no-pager *", "npm *", "uv run *", "uv run python *", "npx *", "timeout *", "timeout 60 *", "/bin/sh *",
        "eval *", "*", " *", "git diff; ls *", "git d* *", "git $x *", "git diff > x *", "git diff >/dev/null *",
        "git # *", "'git diff *", "git diff \\ *", "git * diff *", "sh /dev/stdin *", "awk *",
    ],
)  # fmt: skip
def test_a_pattern_that_could_run_anything_is_refused(entry: str) -> None:
    assert entry_flaw(entry) is not None
    prefix = entry.removesuffix(" *")
    assert not covers((entry,), f"{prefix} x")


@pytest.mark.parametrize(
    "entry", ["npm run *", "git stash *", "make test *", "find . *", "python3 x.py *", "rm -rf build *"]
)
def test_a_person_may_write_a_wider_pattern_than_the_suggested(entry: str) -> None:
    assert entry_flaw(entry) is None
    assert covers((entry,), entry.replace("*", "x"))
