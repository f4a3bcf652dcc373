"""Which commands the entries of a grant cover, and which entries to suggest. ``git diff *`` is a prefix of arguments.

An entry is matched with the words that the shell passes to a program, never with the text of a command.
"""

import re
import shlex
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from toolcrib.policy.shell_parser import SimpleCommand, parse_command


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Programs that run code which their arguments contain. A pattern must name the script or the module.
_INTERPRETERS: Final = re.compile(
    r"(?:ipython|python|pypy|node|nodejs|tsx|ts-node|ruby|perl|php|lua|luajit|Rscript|julia|groovy|scala|elixir|tclsh|pwsh|"
    r"sh|bash|dash|zsh|ksh|mksh|ash|fish|csh|tcsh)[0-9.]*"
)
_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*")
# Modules that run other code.
_OPAQUE_MODULES: Final = _names(
    "IPython asyncio bdb cProfile code coverage doctest idlelib ipdb pdb profile runpy timeit trace"
)
# Programs that run a program or code which any of their arguments may name.
_OPAQUE: Final = _names(
    "awk bun busybox chroot deno doas ed emacs env expect flock gawk gdb lldb ltrace m4 mawk mysql nawk nice "
    "nsenter osascript parallel psql rlwrap run-parts screen script setarch setpriv setsid socat sqlite3 ssh "
    "start-stop-daemon stdbuf strace su sudo systemd-run tmux toybox unshare vi vim watch xargs"
)
# Programs whose first argument says what they do.
_WITH_SUBCOMMANDS: Final = _names(
    "ansible apk apt apt-get aws az brew bundle cargo composer conda dnf docker dotnet flutter gcloud gem gh git "
    "glab go gradle helm hg jj just kubectl make mix mvn npm pacman pdm pip pip3 pipenv pipx pnpm podman poetry "
    "pulumi rails rake rustup sbt snap stack svn systemctl task terraform tox uv yarn yum zig"
)
# Subcommands whose own first argument says what they do; a suggestion includes it.
_NESTED: Final = {
    "npm": {"run", "config"},
    "pnpm": {"run", "config"},
    "yarn": {"run", "config", "workspace"},
    "docker": {"compose", "container", "image", "network", "volume"},
    "git": {"bisect", "bundle", "config", "notes", "reflog", "remote", "stash", "submodule", "worktree"},
    "gh": {"issue", "pr", "release", "repo", "run", "workflow"},
    "go": {"mod", "tool", "work"},
    "uv": {"pip", "tool"},
    "kubectl": {"config", "create", "delete", "get", "rollout"},
}
# What follows is a command of its own.
_RUNNERS: Final = (
    ("npx",), ("pnpx",), ("uvx",), ("nohup",), ("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"),
    ("pipx", "run"), ("bundle", "exec"), ("npm", "exec"), ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"),
    ("yarn", "exec"),
)  # fmt: skip
_DURATION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?[smh]?")
# Suggested with exactly these arguments, which matter more than the name. A person may still write a pattern.
_ARGUMENTS_MATTER: Final = _names(
    "cd chmod chown curl dd find kill killall ln mv pkill rm rmdir rsync scp sed shred tee truncate wget"
)

# The end of a pattern.
_ANY: Final = " *"

Words = tuple[str | None, ...]


def covered_parts(text: str, entries: Iterable[str]) -> frozenset[int]:
    """Return the numbers of the simple commands in ``text`` that a rule's entries cover; compare ``part_count``.

    An entry covers the command with exactly its text. An entry that ends in `` *`` also covers the simple commands that
    begin with its words, and one without it those with the same words.
    """
    entries = tuple(entries)
    if text in entries:
        return frozenset(range(part_count(text)))
    commands = enumerate(parse_command(text) or ())
    return frozenset(number for number, command in commands if any(_covers(entry, command) for entry in entries))


def part_count(text: str) -> int:
    """Return the number of simple commands; a command that cannot be parsed counts as one."""
    commands = parse_command(text)
    return 1 if commands is None else len(commands)


def suggested_entries(text: str) -> tuple[str, ...] | None:
    """Return entries of useful width that cover this command; ``None`` if only its exact text can."""
    commands = parse_command(text)
    if commands is None:
        return None
    entries = [entry for command in commands if (entry := _suggested(command.words))]
    return tuple(dict.fromkeys(entries)) if len(entries) == len(commands) else None


def entry_flaw(entry: str) -> str | None:
    """Return why an entry that ends in `` *`` is not a pattern; ``None`` if it is one, or an exact command."""
    if (not entry.endswith(_ANY) and entry != "*") or _pattern(entry) is not None:
        return None
    if _pattern_words(entry) is None:
        return (
            f"`{entry}` is not a pattern. Use the first words of one command and ` *`, such as `git diff *`, or give "
            "the exact command."
        )
    return (
        f"`{entry}` covers too much: it could run anything. Say what it runs, such as `git diff *`, `npm run build *` "
        "or `python3 -m unittest *`, or give the exact command."
    )


def _covers(entry: str, command: SimpleCommand) -> bool:
    words = command.words
    if (prefix := _pattern(entry)) is not None:
        return words[: len(prefix)] == prefix
    exact = parse_command(entry) if not entry.endswith(_ANY) else None
    # An interpreter without a script may read its code from a pipe.
    return (
        exact is not None and len(exact) == 1 and words == exact[0].words and None not in words and not _opaque(words)
    )


@lru_cache(maxsize=1_024)
def _pattern(entry: str) -> Words | None:
    """Return the words of a pattern without its ``*``; ``None`` if it is none, or one that could run anything."""
    words = _pattern_words(entry)
    return None if words is None or _width(words) is None else words


def _pattern_words(entry: str) -> Words | None:
    if not entry.endswith(_ANY):
        return None
    whole, prefix = parse_command(entry), parse_command(entry.removesuffix(_ANY))
    if whole is None or prefix is None or len(whole) != 1 or len(prefix) != 1 or whole[0].is_redirected:
        return None
    words = prefix[0].words
    # In a comment, the ``*`` is no word.
    return words if None not in words and whole[0].words == (*words, None) else None


def _suggested(words: Words) -> str | None:
    width = _width(words, nested=True)
    exact = width is None or _name(words) in _ARGUMENTS_MATTER
    if exact and (None in words or _opaque(words)):
        return None
    return shlex.join(str(word) for word in words[: None if exact else width]) + ("" if exact else _ANY)


def _width(words: Words, *, nested: bool = False) -> int | None:
    """Return how many words say what a command runs; ``None`` if the other words could make it run anything.

    Args:
        nested: Include the subcommand of a subcommand, such as ``build`` in ``npm run build``.
    """
    if (start := _start_of_command(words)) is None or (name := _name(words[start:])) is None or name in _OPAQUE:
        return None
    if start:
        inner = _width(words[start:], nested=nested)
        return None if inner is None else start + inner
    if name in _WITH_SUBCOMMANDS:
        first = 2 if name == "git" and words[1:2] == ("--no-pager",) else 1
        is_nested = nested and words[first : first + 1] and words[first] in _NESTED.get(name, ())
        last = first + 1 if is_nested else first
        return last + 1 if all(_is_plain(words, number) for number in range(first, last + 1)) else None
    if _INTERPRETERS.fullmatch(name) is None:
        return 1
    if _PYTHON.fullmatch(name) and words[1:2] == ("-m",) and _is_plain(words, 2):
        return None if str(words[2]).partition(".")[0] in _OPAQUE_MODULES else 3
    return 2 if _is_plain(words, 1) else None


def _opaque(words: Words) -> bool:
    """Whether a command may run what its input or its arguments say."""
    start = _start_of_command(words)
    name = None if start is None else _name(words[start:])
    if name is None or name in _OPAQUE:
        return True
    return _INTERPRETERS.fullmatch(name) is not None and _width(words) is None


def _start_of_command(words: Words) -> int | None:
    """Return where the command begins that a runner such as ``uv run`` runs: 0 without one, ``None`` if unknown."""
    name = _name(words)
    start = next((len(one) for one in _RUNNERS if (name, *words[1 : len(one)]) == one), 0)
    if name == "timeout":
        start = 2 if len(words) > 1 and _DURATION.fullmatch(words[1] or "") else 1
    return None if start and not _is_plain(words, start) else start


def _name(words: Words) -> str | None:
    return None if words[0] is None else words[0].rpartition("/")[2]


def _is_plain(words: Words, number: int) -> bool:
    """Whether there is such a word, and it is no option and no device to read code from."""
    word = words[number] if number < len(words) else None
    return bool(word) and not str(word).startswith(("-", "/dev/", "/proc/"))
