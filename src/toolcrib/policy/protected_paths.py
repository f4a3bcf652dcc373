"""Paths that are protected from agents: secrets, and files that are executed. Checks names, so that new files count.

A pattern has one or more components; it matches at any depth, and protects everything below a match. ``*`` stays within
a component, ``**`` spans any number of them.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from toolcrib.core.paths import WorkspacePath


@dataclass(frozen=True, slots=True)
class ProtectedPattern:
    """One protected name, and the reason."""

    glob: str
    why: str
    unless: tuple[str, ...] = ()
    # Protects the name itself and not what is below it: git must be able to commit.
    itself_only: bool = False
    # A separate word in the stem of a name, with no extension or with that of a data format.
    word: str | None = None
    # Not below a .git folder, where git itself writes it.
    outside_git: bool = False
    # Not in a folder of installed packages: their names and certificates are public, and programs import them.
    outside_packages: bool = False


_SECRETS = "holds secrets"
_KEYS = "holds a private key"
_GIT = "runs programs when git is used"
_SHELL = "runs when a shell starts"
_EDITOR = "runs programs when an editor opens the folder"
_AGENT = "instructs and runs programs in a coding agent"
_CI = "runs programs where the project is built"
_BUILD = "runs programs when the project is built or installed"
# Formats of files with secrets; a source file or a text about secrets is not one.
_DATA = (
    "age|asc|bak|cfg|conf|config|csv|dat|db|enc|env|gpg|ini|json|json5|jsonc|kdbx|old|plist|properties|sqlite|sqlite3|"
    "tfvars|toml|tsv|txt|xml|ya?ml"
)

# Neither read nor written. Specific patterns come first: the first match is reported.
READING: Final = (
    ProtectedPattern(".env", _SECRETS),
    ProtectedPattern(".env.*", _SECRETS, unless=(".env.example", ".env.sample", ".env.template")),
    ProtectedPattern("*.env", _SECRETS, unless=(".env", "example.env", "sample.env", "template.env")),
    ProtectedPattern(".envrc", "holds secrets and runs when a shell enters the folder"),
    ProtectedPattern(".git/config", "holds addresses with tokens and names programs that git runs"),
    ProtectedPattern(".git/config.worktree", "is a part of .git/config"),
    ProtectedPattern(".git/modules/**/config", "is the .git/config of a submodule"),
    ProtectedPattern(".git-credentials", _SECRETS),
    ProtectedPattern(".netrc", _SECRETS),
    ProtectedPattern(".npmrc", _SECRETS),
    ProtectedPattern(".pypirc", _SECRETS),
    ProtectedPattern(".pgpass", _SECRETS),
    ProtectedPattern(".htpasswd", _SECRETS),
    ProtectedPattern(".docker/config.json", _SECRETS),
    ProtectedPattern(".dockercfg", _SECRETS),
    ProtectedPattern("*.tfstate", _SECRETS),
    ProtectedPattern("*.tfstate.*", _SECRETS),
    ProtectedPattern(".aws", _SECRETS),
    ProtectedPattern(".kube", _SECRETS),
    ProtectedPattern(".mcp.json", "holds secrets and names programs that an MCP client starts"),
    ProtectedPattern(".ssh", _KEYS),
    ProtectedPattern(".gnupg", _KEYS),
    ProtectedPattern("id_rsa*", _KEYS),
    ProtectedPattern("id_dsa*", _KEYS),
    ProtectedPattern("id_ecdsa*", _KEYS),
    ProtectedPattern("id_ed25519*", _KEYS),
    # CA bundles, which many libraries ship, contain no key.
    ProtectedPattern(
        "*.pem",
        _KEYS,
        unless=("cacert.pem", "cacerts.pem", "ca-bundle.pem", "ca-certificates.pem"),
        outside_packages=True,
    ),
    ProtectedPattern("*.key", _KEYS),
    ProtectedPattern("*.p12", _KEYS),
    ProtectedPattern("*.pfx", _KEYS),
    ProtectedPattern("*credential*", _SECRETS, word="credentials?", outside_packages=True),
    ProtectedPattern("*secret*", _SECRETS, word="secrets?", outside_packages=True),
)

# Readable, but written only after a person approved: such a file becomes code on their machine.
WRITING_ONLY: Final = (
    ProtectedPattern(".git", "selects the repository, and so the programs, that git uses", itself_only=True),
    ProtectedPattern(".git/hooks", _GIT),
    ProtectedPattern(".git/commondir", "decides which configuration git uses"),
    ProtectedPattern(".git/worktrees", "decides which configuration git uses"),
    ProtectedPattern(".git/objects/info", "decides which other repository git reads"),
    ProtectedPattern("commondir", "decides which configuration git uses"),
    # With it, a folder becomes a bare repository, whose configuration git obeys.
    ProtectedPattern(
        "HEAD", "makes a folder a repository, whose programs git runs", itself_only=True, outside_git=True
    ),
    ProtectedPattern("*.git/config", "names programs that git runs", unless=(".git/config",)),
    ProtectedPattern("*.git/hooks", _GIT, unless=(".git/hooks",)),
    ProtectedPattern(".git/info", _GIT),
    ProtectedPattern(".git/modules", _GIT),
    ProtectedPattern(".gitmodules", "decides from where git fetches"),
    ProtectedPattern(".gitattributes", _GIT),
    ProtectedPattern(".gitconfig", _GIT),
    ProtectedPattern(".githooks", _GIT),
    ProtectedPattern(".husky", _GIT),
    ProtectedPattern(".lefthook", _GIT),
    ProtectedPattern("lefthook.*", _GIT),
    ProtectedPattern(".lefthook.*", _GIT),
    ProtectedPattern(".pre-commit-config.*", _GIT),
    ProtectedPattern(".pre-commit-hooks.*", _GIT),
    ProtectedPattern(".github/workflows", _CI),
    ProtectedPattern(".github/actions", _CI),
    ProtectedPattern(".gitlab-ci.*", _CI),
    ProtectedPattern(".circleci", _CI),
    ProtectedPattern(".buildkite", _CI),
    ProtectedPattern(".woodpecker*", _CI),
    ProtectedPattern(".drone.*", _CI),
    ProtectedPattern(".travis.*", _CI),
    ProtectedPattern("azure-pipelines.*", _CI),
    ProtectedPattern("bitbucket-pipelines.*", _CI),
    ProtectedPattern("jenkinsfile", _CI),
    ProtectedPattern(".cargo/config*", _BUILD),
    ProtectedPattern(".yarnrc*", _BUILD),
    ProtectedPattern(".pnpmfile.*", _BUILD),
    ProtectedPattern(".bundle/config", _BUILD),
    ProtectedPattern(".mise*", "runs when a shell enters the folder"),
    ProtectedPattern(".vscode", _EDITOR),
    ProtectedPattern(".idea", _EDITOR),
    ProtectedPattern(".devcontainer*", _EDITOR),
    ProtectedPattern(".zed", _EDITOR),
    ProtectedPattern(".fleet", _EDITOR),
    ProtectedPattern("*.code-workspace", _EDITOR),
    ProtectedPattern(".nvim.lua", _EDITOR),
    ProtectedPattern(".nvimrc", _EDITOR),
    ProtectedPattern(".vimrc", _EDITOR),
    ProtectedPattern(".exrc", _EDITOR),
    ProtectedPattern(".dir-locals*.el", _EDITOR),
    ProtectedPattern(".gdbinit", "runs programs when a debugger starts"),
    ProtectedPattern(".lldbinit", "runs programs when a debugger starts"),
    ProtectedPattern(".claude*", _AGENT),
    ProtectedPattern(".agents", _AGENT),
    ProtectedPattern(".codex", _AGENT),
    ProtectedPattern(".cursor*", _AGENT),
    ProtectedPattern(".gemini", _AGENT),
    ProtectedPattern(".windsurf*", _AGENT),
    ProtectedPattern(".opencode", _AGENT),
    ProtectedPattern("opencode.json*", _AGENT),
    ProtectedPattern(".continue", _AGENT),
    ProtectedPattern(".roo", _AGENT),
    ProtectedPattern(".aider*", _AGENT),
    ProtectedPattern(".bashrc", _SHELL),
    ProtectedPattern(".bash_profile", _SHELL),
    ProtectedPattern(".bash_login", _SHELL),
    ProtectedPattern(".profile", _SHELL),
    ProtectedPattern(".zshrc", _SHELL),
    ProtectedPattern(".zshenv", _SHELL),
    ProtectedPattern(".zprofile", _SHELL),
    ProtectedPattern(".zlogin", _SHELL),
    ProtectedPattern(".ripgreprc", "makes ripgrep run a preprocessor"),
)

# Where package managers install: `azure/identity/_credentials` and `@aws-sdk/credential-providers` are code.
PACKAGE_FOLDERS: Final = frozenset({"node_modules", "site-packages", "dist-packages", "vendor"})

# A new link that leads out of the workspace, by whatever name. An approval names this rule, and an owner lifts it for
# an agent like a pattern.
OUTWARD_LINK: Final = "outward-link"

PATTERNS: Final = {pattern.glob: pattern for pattern in READING + WRITING_ONLY}


@dataclass(frozen=True, slots=True)
class ProtectedPaths:
    """The protected names of one agent: all except those that its owner lifted, by their glob."""

    lifted: tuple[str, ...] = ()

    def protects_reading(self, path: WorkspacePath) -> str | None:
        """Return the pattern that protects ``path`` from reading, if any."""
        return _first_match(path, self.lifted, writing=False)

    def protects_writing(self, path: WorkspacePath) -> str | None:
        """Return the pattern that protects ``path`` from writing, if any. Includes those for reading."""
        return _first_match(path, self.lifted, writing=True)


def _first_match(path: WorkspacePath, lifted: tuple[str, ...], *, writing: bool) -> str | None:
    parts = path.parts
    if not any(map(is_suspect, parts)):
        return None
    names = [folded(part) for part in parts]
    at = next((number for number, name in enumerate(names) if name in PACKAGE_FOLDERS), None)
    if at is None:
        return _match(names, lifted, writing=writing)
    # Everything below a protected folder is protected, packages too.
    return _match(names[:at], lifted, writing=writing) or _match(names, lifted, writing=writing, in_packages=True)


def _match(names: list[str], lifted: tuple[str, ...], *, writing: bool, in_packages: bool = False) -> str | None:
    expression, globs = _in_force(lifted, writing=writing, in_git=".git" in names, in_packages=in_packages)
    found = expression.search(f"/{'/'.join(names)}/")
    return globs[found.lastindex - 1] if found and found.lastindex else None


@lru_cache(maxsize=65_536)
def is_suspect(component: str) -> bool:
    """Whether any pattern starts with this name. Nearly always false, and cached because names repeat."""
    return _SUSPECT.match(folded(component)) is not None


# Invisible characters that some file systems ignore, though Unicode does not class them as format characters.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def folded(component: str) -> str:
    """Normalize a name as the most lenient file system would compare it."""
    if component.isascii() and component.isprintable():
        return component.lower().rstrip(". ")
    name = unicodedata.normalize("NFKC", component).casefold()
    name = "".join(char for char in name if unicodedata.category(char) not in ("Cc", "Cf"))
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", name)).rstrip(". ")


@lru_cache(maxsize=1_024)
def _in_force(
    lifted: tuple[str, ...], *, writing: bool, in_git: bool, in_packages: bool
) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Build one expression over a path that starts and ends with ``/``, and the glob of each group."""
    patterns = [
        pattern
        for pattern in (READING + WRITING_ONLY if writing else READING)
        if pattern.glob not in lifted
        and not (in_git and pattern.outside_git)
        and not (in_packages and pattern.outside_packages)
    ]
    # Without patterns nothing may match: an empty alternation would match everything.
    expression = "|".join(map(_expression, patterns)) or "(?!)"
    return re.compile(f"/(?:{expression})"), tuple(pattern.glob for pattern in patterns)


def _expression(pattern: ProtectedPattern) -> str:
    exceptions = "".join(f"(?!{_translated(name)}/)" for name in pattern.unless)
    end = r"(?=/\Z)" if pattern.itself_only else "(?=/)"
    name = _translated(pattern.glob) if pattern.word is None else _with_word(pattern.word)
    return f"{exceptions}({name}){end}"


def _with_word(word: str) -> str:
    """Match names with the word separate in their stem. The extension follows the last dot."""
    rest_of_stem = r"(?:[^/.]|\.(?=[^/]*\.))*"
    return rf"(?:[^/]*[^a-z0-9/])?{word}(?![a-z0-9]){rest_of_stem}(?:\.(?:{_DATA}))?"


def _translated(glob: str) -> str:
    return re.escape(glob.lower()).replace(r"\*\*/", "(?:[^/]+/)*").replace(r"\*", "[^/]*")


_SUSPECT = re.compile("|".join(rf"{_translated(glob.partition('/')[0])}\Z" for glob in PATTERNS))
