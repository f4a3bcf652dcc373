"""Names whose content agents neither read nor write. Judges names, so it holds for what does not exist yet.

A pattern is one component or several; it counts at any depth, and protects what lies beneath a match.
``*`` stays within a component, ``**`` spans any number of them.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from toolcrib.domain.places import Place


@dataclass(frozen=True, slots=True)
class Pattern:
    """One protected name, and why it is protected."""

    glob: str
    why: str
    unless: tuple[str, ...] = ()
    # The name itself is protected and what lies beneath is not: git must be able to commit.
    itself_only: bool = False


_SECRETS = "holds secrets"
_KEYS = "holds a private key"
_GIT = "runs programs when git is used"
_SHELL = "runs when a shell starts"
_EDITOR = "runs programs when an editor opens the folder"

# Neither read nor written. The particular stands before the general: the first that matches is named.
READING: Final = (
    Pattern(".env", _SECRETS),
    Pattern(".env.*", _SECRETS, unless=(".env.example", ".env.sample", ".env.template")),
    Pattern(".envrc", "holds secrets and runs when a shell enters the folder"),
    Pattern(".git/config", "holds addresses with tokens and names programs that git runs"),
    Pattern(".git/config.worktree", "is a part of .git/config"),
    Pattern(".git/modules/**/config", "is the .git/config of a submodule"),
    Pattern(".git/hooks", _GIT),
    Pattern(".git-credentials", _SECRETS),
    Pattern(".netrc", _SECRETS),
    Pattern(".npmrc", _SECRETS),
    Pattern(".pypirc", _SECRETS),
    Pattern(".pgpass", _SECRETS),
    Pattern(".htpasswd", _SECRETS),
    Pattern(".aws", _SECRETS),
    Pattern(".kube", _SECRETS),
    Pattern(".mcp.json", "holds secrets and names programs that an MCP client starts"),
    Pattern(".ssh", _KEYS),
    Pattern(".gnupg", _KEYS),
    Pattern("id_rsa*", _KEYS),
    Pattern("id_dsa*", _KEYS),
    Pattern("id_ecdsa*", _KEYS),
    Pattern("id_ed25519*", _KEYS),
    Pattern("*.pem", _KEYS),
    Pattern("*.key", _KEYS),
    Pattern("*.p12", _KEYS),
    Pattern("*.pfx", _KEYS),
    Pattern("*credential*", _SECRETS),
    Pattern("*secret*", _SECRETS),
)

# Read freely, never written: it becomes code on a person's machine without their asking for it.
WRITING_ONLY: Final = (
    Pattern(".git", "decides which repository, and so whose programs, git uses", itself_only=True),
    Pattern(".git/commondir", "decides which configuration git uses"),
    Pattern(".git/info", _GIT),
    Pattern(".git/modules", _GIT),
    Pattern(".gitmodules", "decides from where git fetches"),
    Pattern(".gitattributes", _GIT),
    Pattern(".gitconfig", _GIT),
    Pattern(".githooks", _GIT),
    Pattern(".husky", _GIT),
    Pattern(".vscode", _EDITOR),
    Pattern(".idea", _EDITOR),
    Pattern(".devcontainer", _EDITOR),
    Pattern(".claude", "instructs and runs programs in a coding agent"),
    Pattern(".cursor", "instructs and runs programs in a coding agent"),
    Pattern(".bashrc", _SHELL),
    Pattern(".bash_profile", _SHELL),
    Pattern(".bash_login", _SHELL),
    Pattern(".profile", _SHELL),
    Pattern(".zshrc", _SHELL),
    Pattern(".zshenv", _SHELL),
    Pattern(".zprofile", _SHELL),
    Pattern(".ripgreprc", "makes ripgrep run a preprocessor"),
)

PATTERNS: Final = {pattern.glob: pattern for pattern in READING + WRITING_ONLY}


@dataclass(frozen=True, slots=True)
class Protection:
    """The protected names of one agent: all of them but those that its owner lifted, named by their glob."""

    lifted: tuple[str, ...] = ()

    def protects_reading(self, place: Place) -> str | None:
        """The pattern that forbids reading ``place``, if any."""
        return _first_match(place, self.lifted, writing=False)

    def protects_writing(self, place: Place) -> str | None:
        """The pattern that forbids writing ``place``, if any. What may not be read may not be written."""
        return _first_match(place, self.lifted, writing=True)


def _first_match(place: Place, lifted: tuple[str, ...], *, writing: bool) -> str | None:
    parts = place.parts
    if not any(map(is_suspect, parts)):
        return None
    expression, globs = _in_force(lifted, writing=writing)
    found = expression.search(f"/{'/'.join(map(folded, parts))}/")
    return globs[found.lastindex - 1] if found and found.lastindex else None


@lru_cache(maxsize=65_536)
def is_suspect(component: str) -> bool:
    """Whether any pattern begins with this name. Nearly always no, and the same names come again."""
    return _SUSPECT.match(folded(component)) is not None


# What nobody sees and some file systems do not compare, though Unicode does not call it a format character.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def folded(component: str) -> str:
    """The name as the most forgiving file system would compare it."""
    if component.isascii() and component.isprintable():
        return component.lower().rstrip(". ")
    name = unicodedata.normalize("NFKC", component).casefold()
    name = "".join(char for char in name if unicodedata.category(char) not in ("Cc", "Cf"))
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", name)).rstrip(". ")


@lru_cache(maxsize=1_024)
def _in_force(lifted: tuple[str, ...], *, writing: bool) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """One expression over a path that begins and ends with ``/``, and each group's glob."""
    patterns = [p for p in (READING + WRITING_ONLY if writing else READING) if p.glob not in lifted]
    # With nothing left nothing may match: an empty alternation would match everything.
    expression = "|".join(map(_expression, patterns)) or "(?!)"
    return re.compile(f"/(?:{expression})"), tuple(pattern.glob for pattern in patterns)


def _expression(pattern: Pattern) -> str:
    exceptions = "".join(f"(?!{_translated(name)}/)" for name in pattern.unless)
    end = r"(?=/\Z)" if pattern.itself_only else "(?=/)"
    return f"{exceptions}({_translated(pattern.glob)}){end}"


def _translated(glob: str) -> str:
    return re.escape(glob).replace(r"\*\*/", "(?:[^/]+/)*").replace(r"\*", "[^/]*")


_SUSPECT = re.compile("|".join(rf"{_translated(glob.partition('/')[0])}\Z" for glob in PATTERNS))
