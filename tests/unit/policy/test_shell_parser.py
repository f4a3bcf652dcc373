"""What the parser says a shell runs is what the shell runs, or the parser refuses."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wait_until import PATIENCE
from toolcrib.policy.shell_parser import SimpleCommand, parse_command

NAMES = ("a", "b", "git", "ls", "cd", "python3")
# Each program writes its words to a file of its own, because those of a pipe run at once. All have the same exit code.
HARNESS = """
log() {
    number=0
    until (set -C; : >"$LOG.$number") 2>/dev/null; do number=$((number + 1)); done
    command printf '%s\\0' "$@" >"$LOG.$number"
    return "$CODE"
}
command_not_found_handle() { log "$@"; }
""" + "".join(f'{name}() {{ log {name} "$@"; }}\n' for name in NAMES)
SHELLS = ([shutil.which("bash"), "-c"], [shutil.which("bash"), "--posix", "-c"], [shutil.which("dash"), "-c"])

TOKENS = st.sampled_from(
    [*NAMES, " ", "  ", "\t", " ", " ", "\n", ";", "&&", "||", "|", "&", "'x y'", '"x y"', "'", '"', "''", '""', "\\",
    "\\ ", "\\\n", "\\\\", "\\'", '\\"', '"\\a"', '"\\$"', "'\\'", "x", "-n", "2>&1", ">/dev/null", "2> /dev/null",
    "</dev/null", ">", "<", ">>", "2", "1", "#", "#c", "$", "$x", "$(a)", "`a`", "*", "?", "[a]", "~", "{", "}",
    "{a,b}", "{}", "=", "x=1",
     "!", "(", ")", "é", "\u00a0", "\r", "\x0b", "if", "then", "fi", "time", "/dev/null"]
)  # fmt: skip
LINES = st.lists(TOKENS, min_size=1, max_size=14).map("".join)
# Mostly accepted: words in any quotes, joined by operators.
WORDS = st.text("ab -'\"\\$*#;|&\n é", max_size=5).map(
    lambda text: "'" + text.replace("'", "'\\''") + "'"
) | st.sampled_from(["a", "-n", '"a b"', "a\\ b", "\\$x", '"\\$x"', "a'b'\"c\"", "x\\\ny", "--a=b", "*", "a#b", "2"])
COMMANDS = st.builds(
    lambda name, words, tail: " ".join([name, *words, *tail]),
    st.sampled_from(NAMES),
    st.lists(WORDS, min_size=1, max_size=4),
    st.lists(st.sampled_from(["2>&1", ">/dev/null", "2> /dev/null", "</dev/null"]), max_size=2),
)
OPERATORS = st.sampled_from(["|", " && ", "||", ";", "\n", " # c; b\n", " |\n ", " &&\n\n", "; ", "\n\n"])
JOINED = st.builds(
    lambda first, rest, end: first + "".join(f"{operator}{command}" for operator, command in rest) + end,
    COMMANDS,
    st.lists(st.tuples(OPERATORS, COMMANDS), max_size=3),
    st.sampled_from(["", ";", "\n", " # c", " \\\n"]),
)
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(LINES | JOINED)
def test_the_shell_runs_what_the_parser_says(tmp_path: Path, line: str) -> None:
    commands = parse_command(line)
    if commands is None or any("/" in str(command.words[0]) for command in commands):
        return

    names = {command.words[0] for command in commands}
    for shell in SHELLS:
        if "dash" in str(shell[0]) and not names <= set(NAMES):
            continue  # It cannot log commands that do not exist.
        logged = [argv for code in (0, 1) for argv in run(shell, line, code, tmp_path)]
        # All programs succeed in one run and fail in the other, so every command runs in one of them.
        assert all(any(matches(one, argv) for one in commands) for argv in logged), (shell, logged)
        assert all(any(matches(one, argv) for argv in logged) for one in commands), (shell, logged)


@SETTINGS
@given(JOINED)
def test_ordinary_commands_are_parsed(line: str) -> None:
    # Whether `cd` is accepted depends on its arguments.
    assert parse_command(line.replace("cd ", "ls ")) is not None


def run(shell: list[str | None], line: str, code: int, folder: Path) -> list[tuple[str, ...]]:
    with TemporaryDirectory(dir=folder) as logs, TemporaryDirectory(dir=folder) as empty:
        subprocess.run(
            [*map(str, shell), HARNESS + line],
            env={"LOG": f"{logs}/log", "CODE": str(code), "PATH": empty, "LC_ALL": "C.UTF-8"},
            cwd=empty,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
        return [tuple(log.read_text().split("\0")[:-1]) for log in Path(logs).iterdir()]


def matches(command: SimpleCommand, argv: tuple[str, ...]) -> bool:
    """Whether the arguments are the words, where each ``None`` stands for at least one."""
    words = command.words
    if not words:
        return not argv
    if not argv:
        return False
    rest = SimpleCommand(words[1:])
    if words[0] is not None:
        return words[0] == argv[0] and matches(rest, argv[1:])
    return any(matches(rest, argv[taken:]) for taken in range(1, len(argv) + 1))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git diff", [("git", "diff")]),
        ("  git   diff\n", [("git", "diff")]),
        ('git commit -m \'a b\' -m "c \\"d\\" e"', [("git", "commit", "-m", "a b", "-m", 'c "d" e')]),
        ("pytest -q 2>&1 | tail -20", [("pytest", "-q"), ("tail", "-20")]),
        ("cd web && npm test || echo no; ls", [("cd", "web"), ("npm", "test"), ("echo", "no"), ("ls",)]),
        ("# first\nmake test # then\nls >/dev/null", [("make", "test"), ("ls",)]),
        ("git log \\\n  --oneline", [("git", "log", "--oneline")]),
        ("ls *.py ~ {a,b} x", [("ls", None, None, None, "x")]),
        ("g'i't di\\ff ''", [("git", "diff", "")]),
    ],
)
def test_simple_commands_are_parsed(line: str, expected: list[tuple[str | None, ...]]) -> None:
    assert [command.words for command in parse_command(line) or ()] == expected


@pytest.mark.parametrize(
    "line",
    [
        "", " ", "# only a comment", "git diff &", "git diff & rm x", "git diff |& sh", "git diff > x",
        "git diff >> x", "git diff >&x", "git diff &> /dev/null", "git diff 2>&1x", "git < x", "cat <<E\nx\nE",
        "cat <<< x", "diff <(a) b", "git diff $(rm x)", "git diff `rm x`", 'git diff "$(rm x)"', 'git diff "`rm x`"',
        "git $x", 'git "$x"', "$git diff", "git diff ${x:=y}", "git diff $((1))", "git diff $'a'", "A=1 git diff",
        "A+=1 git", "a[0]=1", "g* diff", "~/git diff", "{git,diff}", "(git diff)", "{ git diff; }", "f() { rm x; }",
        "if a; then b; fi", "for i in a; do b; done", "while a; do b; done", "case a in b) c;; esac", "! git diff",
        "time git diff", "eval git diff", "exec git diff", "command git diff", "builtin cd x", ". ./x", "source x",
        "export A=b", "alias git=rm", "set -- x", "trap x EXIT", "printf -v PATH x", "test -v 'a[$(rm x)]'", "read x",
        "unset x", "[ -f x ]", "[[ -f x ]]", "'' x", "\"\" x", "cd", "cd -", "cd -P x", "git diff ;;",
        "git diff && && ls", "&& git", "| git", "git diff &&", "git diff |", ";", "; git", "git 'diff", 'git "diff',
        "git diff\\", "git\rdiff", "git\x00", "git \x1b[1m", "git '\x07'", "{x}>/dev/null git", "git diff>/dev/null",
        "12>/dev/null git", "git diff 2\\\n>&1", "coproc git", "a" * 20_000,
    ],
)  # fmt: skip
def test_what_is_not_certain_is_refused(line: str) -> None:
    assert parse_command(line) is None


def test_the_harness_logs_what_runs(tmp_path: Path) -> None:
    for shell in SHELLS:
        assert Counter(run(shell, "git 'a b' '' | ls; a && b", 0, tmp_path)) == Counter(
            [("git", "a b", ""), ("ls",), ("a",), ("b",)]
        )
