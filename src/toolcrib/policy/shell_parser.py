"""Parses shell commands into simple commands with their arguments, or refuses to.

The parser knows a small part of the POSIX shell language, and reads it like ``sh`` and ``bash``: simple commands with
quotes, joined by pipes, ``&&``, ``||``, ``;`` and newlines. It refuses everything else, such as substitutions,
variables, redirections to files, assignments, compound commands, and builtins that change how later words are read. A
refused line is covered only by a grant that has exactly its text.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# Longer lines are not parsed. Parsing takes linear time, but it happens on the event loop.
_LONGEST: Final = 16_384


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program and its arguments. ``None`` is a word that the shell expands, such as ``*.py``."""

    words: tuple[str | None, ...]
    is_redirected: bool = False


@lru_cache(maxsize=1_024)
def parse_command(text: str) -> tuple[SimpleCommand, ...] | None:
    """Return the simple commands that a shell may run for this text; ``None`` if that is not certain."""
    if len(text) > _LONGEST:
        return None
    try:
        return _Parser(text).parse()
    except _NotCertain:
        return None


class _NotCertain(Exception):
    """The text has a part that this parser does not know."""


_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+^\]-]+")
# Expanded to file names or several words, or read differently by some shell or in some locale.
_EXPANDED: Final = frozenset("*?[{}~")
_BLANK: Final = " \t"
_REDIRECTION = re.compile(r"[012]?>>?|0?<")
_NULL_DEVICE = re.compile(r"[ \t]*/dev/null(?=[ \t\n;|&]|\Z)")
_DUPLICATE = re.compile(r"&[12](?=[ \t\n;|&]|\Z)")
# They change how the rest of the line is read or run, or run their arguments as shell code.
_REFUSED_NAMES: Final = frozenset(
    re.split(
        " +",
        "! [[ { } case coproc do done elif else esac fi for function if in select then time until while . alias bg "
        "bind break builtin chdir command compgen complete compopt continue declare disown enable eval exec exit "
        "export fc fg getopts hash jobs let local logout mapfile popd pushd read readarray readonly return set shift "
        "shopt source suspend test trap typeset ulimit umask unalias unset wait",
    )
)
# With these, an option or a variable changes what a later command is.
_PLAIN_ARGUMENT_FIRST: Final = frozenset({"cd", "printf"})


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._commands: list[SimpleCommand] = []

    def parse(self) -> tuple[SimpleCommand, ...]:
        while True:
            # A list may start with empty lines; after an operator that joins, a command must follow.
            self._skip_lines()
            if self._at == len(self._text):
                break
            self._simple_command()
            while self._joins():
                self._skip_lines()
                self._simple_command()
            if self._next == ";":
                self._at += 1
                self._skip_blank()
            elif self._next not in ("\n", ""):
                raise _NotCertain
        if not self._commands:
            raise _NotCertain
        return tuple(self._commands)

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _joins(self) -> bool:
        """Skip an operator after which a command must follow. Returns whether there was one."""
        for operator in ("&&", "||", "|"):
            if self._text.startswith(operator, self._at):
                self._at += len(operator)
                if self._next in ("&", "|"):
                    raise _NotCertain
                return True
        return False

    def _skip_blank(self) -> None:
        while True:
            if self._next and self._next in _BLANK:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            else:
                break
        if self._next == "#":
            # Also after a continued line: no word has begun, so this is a comment.
            end = self._text.find("\n", self._at)
            self._check_characters(self._text[self._at : end if end >= 0 else None])
            self._at = end if end >= 0 else len(self._text)

    def _skip_lines(self) -> None:
        self._skip_blank()
        while self._next == "\n":
            self._at += 1
            self._skip_blank()

    def _simple_command(self) -> None:
        words: list[str | None] = []
        is_redirected = False
        self._skip_blank()
        while self._next and self._next not in "\n;|&":
            if self._redirection():
                is_redirected = True
            else:
                words.append(self._word())
            self._skip_blank()
        if not words or not words[0] or words[0] in _REFUSED_NAMES or "=" in words[0]:
            raise _NotCertain
        if words[0] in _PLAIN_ARGUMENT_FIRST and (len(words) < 2 or not words[1] or words[1].startswith("-")):
            raise _NotCertain
        self._commands.append(SimpleCommand(tuple(words), is_redirected))

    def _redirection(self) -> bool:
        """Skip a redirection that opens no file: to or from ``/dev/null``, or between standard output and error."""
        operator = _REDIRECTION.match(self._text, self._at)
        if operator is None:
            return False
        target = _NULL_DEVICE.match(self._text, operator.end())
        if target is None and operator[0] in (">", "1>", "2>"):
            target = _DUPLICATE.match(self._text, operator.end())
        if target is None:
            raise _NotCertain
        self._at = target.end()
        return True

    def _word(self) -> str | None:
        """Read a word up to a blank, an operator or the end."""
        parts: list[str] = []
        is_literal = True
        while self._next and self._next not in " \t\n;|&":
            if plain := _PLAIN.match(self._text, self._at):
                parts.append(plain[0])
                self._at = plain.end()
                continue
            character = self._next
            self._at += 1
            match character:
                case "'":
                    parts.append(self._quoted_by_apostrophes())
                case '"':
                    parts.append(self._quoted())
                case "\\":
                    parts.append(self._escaped())
                case "#" | "!":
                    # Not at the start of a word, so neither a comment nor a negation.
                    parts.append(character)
                case _ if character in _EXPANDED:
                    is_literal = False
                case _ if not character.isascii() and character.isprintable():
                    # In an 8-bit locale, one of its bytes may be a blank.
                    is_literal = False
                case _:
                    # Among others $, `, (, ), < and >, and control characters.
                    raise _NotCertain
        return "".join(parts) if is_literal else None

    def _escaped(self) -> str:
        character = self._next
        self._at += 1
        if character == "\n":
            return ""
        if not character or not character.isascii() or not character.isprintable():
            raise _NotCertain
        return character

    def _quoted_by_apostrophes(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise _NotCertain
        text = self._text[self._at : end]
        self._check_characters(text)
        self._at = end + 1
        return text

    def _quoted(self) -> str:
        parts: list[str] = []
        while (character := self._next) != '"':
            self._at += 1
            if character in ("", "$", "`"):
                raise _NotCertain
            if character == "\\":
                if not (following := self._next):
                    raise _NotCertain
                self._at += 1
                parts.append("" if following == "\n" else following if following in '$`"\\' else "\\" + following)
            else:
                parts.append(character)
        self._at += 1
        text = "".join(parts)
        self._check_characters(text)
        return text

    def _check_characters(self, text: str) -> None:
        """Refuse control characters, except for tabs and newlines, and invalid Unicode."""
        if any((character < " " and character not in "\t\n") or "\x7f" <= character <= "\x9f" for character in text):
            raise _NotCertain
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _NotCertain
