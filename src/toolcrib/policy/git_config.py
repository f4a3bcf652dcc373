"""What commands get of git's configuration: settings that are known to be harmless, and addresses without credentials.

Everything else is dropped: a configuration names programs that git runs, and has secrets in addresses, headers and
sections of helpers. Parses as git does, without git; what git would reject has no settings.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from posixpath import isabs, join, normpath
from typing import Final

# A real configuration has some kilobytes.
MAX_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class GitSetting:
    """One setting. ``section`` and ``key`` are in lower case; ``value`` is None for a key without ``=``."""

    section: str
    subsection: str | None
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class HarmlessConfig:
    """The text for commands, and how many settings it leaves out."""

    text: bytes
    left_out: int


class InvalidGitConfig(ValueError):
    """The text is no configuration that git would accept."""


def parse_git_config(text: bytes) -> list[GitSetting]:
    """Return the settings in their order. Raises ``InvalidGitConfig``."""
    return [entry.setting for entry in _entries(_decoded(text)) if entry.setting]


def harmless_config(text: bytes, *, folder: str | None = None) -> HarmlessConfig:
    """Return the harmless settings of a configuration.

    Args:
        folder: The folder of a repository's configuration, relative to the mount; its working tree is in the mount.
    """
    try:
        settings = parse_git_config(text)
    except InvalidGitConfig:
        return HarmlessConfig(b"", 1)
    harmless = [cleaned for setting in settings if (cleaned := _cleaned(setting, folder))]
    return HarmlessConfig(_rendered(harmless), len(settings) - len(harmless))


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """What a command did to the configuration that it saw, applied to the real one.

    - ``only_branches``: It only says which branch of a known remote a branch follows, which runs nothing.
    """

    text: bytes
    only_branches: bool


def apply_edit(real: bytes, seen: bytes, written: bytes, *, folder: str | None = None) -> ConfigEdit | None:
    """Apply the difference between what a command saw and what it wrote. None if no setting differs.

    Raises ``InvalidGitConfig`` if one of them cannot be parsed.
    """
    before, after = parse_git_config(seen), parse_git_config(written)
    removed, added = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not removed and not added:
        return None
    remotes = {setting.subsection for setting in before if setting.section == "remote"} | {"."}
    only_branches = all(map(_is_tracking, removed | added)) and remotes.issuperset(
        setting.value for setting in added if setting.key == "remote"
    )
    text = _without(_decoded(real), removed, folder)
    separator = "" if not text or text.endswith("\n") else "\n"
    return ConfigEdit(_encoded(text + separator) + _rendered(list(added.elements())), only_branches)


def _is_tracking(setting: GitSetting) -> bool:
    is_of_a_branch = setting.section == "branch" and setting.key in ("remote", "merge", "rebase")
    return is_of_a_branch and _cleaned(setting, None) == setting


def _without(text: str, removed: Counter[GitSetting], folder: str | None) -> str:
    """Remove the lines of settings that look as ``removed`` to commands, and headers that have none left."""
    left, kept = Counter(removed), []
    for entry in _entries(text):
        cleaned = _cleaned(entry.setting, folder) if entry.setting else None
        if cleaned and left[cleaned]:
            left[cleaned] -= 1
            kept.append((entry, ""))
        else:
            kept.append((entry, text[entry.begin : entry.end]))
    pieces: list[str] = []
    for number, (entry, piece) in enumerate(kept):
        below = []
        if entry.is_header:
            for following, its_piece in kept[number + 1 :]:
                if following.is_header:
                    break
                below.append((following, its_piece))
        emptied = any(not its_piece for _, its_piece in below) and not any(its_piece.strip() for _, its_piece in below)
        pieces.append("" if emptied else piece)
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A header, a setting, or blank lines and comments, as a span of the text."""

    begin: int
    end: int
    is_header: bool = False
    setting: GitSetting | None = None


_BLANK: Final = re.compile(r"[ \t\r]*(?:[#;][^\n]*)?(?:\n|\Z)")
_HEADER: Final = re.compile(
    r'[ \t\r]*\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\](?:[ \t\r]*(?:[#;][^\n]*)?\n)?'
)
_KEY: Final = re.compile(r"[ \t\r]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(=|\r?\n|\Z)")
_ESCAPES: Final = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}


def _entries(text: str) -> Iterator[_Entry]:
    at, section, subsection = 0, None, None
    while at < len(text):
        if blank := _BLANK.match(text, at):
            yield _Entry(at, blank.end())
            at = blank.end()
        elif header := _HEADER.match(text, at):
            section, subsection = header[1].lower(), header[2]
            if subsection is not None:
                subsection = re.sub(r"\\(.)", r"\1", subsection)
            elif "." in section:
                section, _, subsection = section.partition(".")
            yield _Entry(at, header.end(), is_header=True)
            at = header.end()
        elif section is not None and (key := _KEY.match(text, at)):
            value, end = _value(text, key.end()) if key[2] == "=" else (None, key.end())
            yield _Entry(at, end, setting=GitSetting(section, subsection, key[1].lower(), value))
            at = end
        else:
            raise InvalidGitConfig(f"not a setting: character {at}")


def _value(text: str, at: int) -> tuple[str, int]:
    """Parse a value. Returns it with the position after its last line."""
    value, spaces, quoted = "", 0, False
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\r" and text[at : at + 1] == "\n":
            continue
        if char == "\n":
            break
        if char in " \t\r" and not quoted:
            spaces += bool(value)
            continue
        if char in "#;" and not quoted:
            end = text.find("\n", at)
            return value, len(text) if end < 0 else end + 1
        value += " " * spaces
        spaces = 0
        if char == '"':
            quoted = not quoted
        elif char != "\\":
            value += char
        else:
            escaped = text[at : at + 2] if text[at : at + 2] == "\r\n" else text[at : at + 1]
            at += len(escaped)
            if escaped.endswith("\n"):
                continue
            if escaped not in _ESCAPES:
                raise InvalidGitConfig(f"not an escape: character {at}")
            value += _ESCAPES[escaped]
    if quoted:
        raise InvalidGitConfig("a quote is not closed")
    return value, at


def _decoded(text: bytes) -> str:
    if len(text) > MAX_BYTES or b"\0" in text:
        raise InvalidGitConfig("too large, or not text")
    return text.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _rendered(settings: list[GitSetting]) -> bytes:
    lines, header = [], None
    for setting in settings:
        named = "" if setting.subsection is None else f' "{_escaped(setting.subsection)}"'
        if (here := f"[{setting.section}{named}]") != header:
            lines.append(here)
            header = here
        value = "" if setting.value is None else f' = "{_escaped(setting.value)}"'
        lines.append(f"\t{setting.key}{value}")
    return _encoded("".join(f"{line}\n" for line in lines))


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\b", "\\b")


def _cleaned(setting: GitSetting, folder: str | None) -> GitSetting | None:
    """Return the setting as commands get it, if they get it."""
    if setting.section == "core" and setting.key == "worktree":
        is_inside = setting.subsection is None and _is_inside(folder, setting.value)
        return setting if is_inside else None
    has_name = setting.subsection is not None
    clean = _HARMLESS.get((setting.section, has_name, setting.key))
    if clean is None and setting.section == "extensions" and not has_name:
        # Without its value: git refuses a format that it does not know, instead of misreading it.
        return GitSetting(setting.section, None, setting.key, "true")
    if clean is None or (setting.subsection and not _is_plain(setting.subsection)):
        return None
    value = clean("true" if setting.value is None else setting.value)
    if value is None:
        return None
    return setting if setting.value is None else GitSetting(setting.section, setting.subsection, setting.key, value)


def _is_inside(folder: str | None, worktree: str | None) -> bool:
    if folder is None or not worktree or isabs(worktree) or not worktree.isprintable():
        return False
    path = normpath(join(folder, worktree))
    return path != ".." and not path.startswith("../")


_TOKEN: Final = re.compile(
    r"(?:gh[oprsu]_|github_pat_|gl[a-z]+-|xox[a-z]-|akia|sk-|npm_|pypi-|eyj)[\w-]{8}|"
    # A long word that no one made up: letters and several digits without a separator.
    r"(?<![a-z0-9])(?=(?:[a-z]*[0-9]){3})(?=[0-9]*[a-z])[a-z0-9]{24,}",
    re.IGNORECASE,
)


def _is_plain(text: str) -> bool:
    """Whether a name or a value contains neither an address nor what could be a token or deceive."""
    return text.isprintable() and "://" not in text and _TOKEN.search(text) is None


def _plain(value: str) -> str | None:
    return value if _is_plain(value) else None


def _matching(pattern: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda value: value if compiled.fullmatch(value) else None


_SCHEME: Final = re.compile(r"(https?|ssh|git|git\+ssh|ssh\+git|file)://([^/?#]*)([^?#]*)(.*)", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:\[[0-9a-f:.]+\]|[\w.-]+)(?::[0-9]{1,5})?|", re.IGNORECASE)
_SCP: Final = re.compile(r"(?:[^@/:]+@)?((?:\[[0-9a-f:.]+\]|[\w.-]+):[^:@][^@]*)", re.IGNORECASE)


def _address(value: str) -> str | None:
    """Return an address without its user, password and query; None for a helper's, or if a part looks like a token."""
    if not value.isprintable():
        return None
    if found := _SCHEME.fullmatch(value):
        scheme, authority, path, rest = found.groups()
        host = authority.rpartition("@")[2]
        # An unescaped character in a password moves its end, and the user's name looks like the host.
        if "@" in path + rest or not _HOST.fullmatch(host):
            return None
        user = "git@" if authority.startswith("git@") else ""
        cleaned = f"{scheme}://{user}{host}{path}"
    elif "://" in value or "::" in value:
        return None
    elif found := _SCP.fullmatch(value):
        cleaned = f"{'git@' if value.startswith('git@') else ''}{found[1]}"
    elif "@" in value or ":" in value:
        return None
    else:
        cleaned = value
    return None if _TOKEN.search(cleaned) else cleaned


def _followed(value: str) -> str | None:
    """Return the remote of a branch: a name, or an address."""
    return _plain(value) if re.fullmatch(r"[\w.+/-]+", value) else _address(value)


_BOOL: Final = _matching("true|false|yes|no|on|off|0|1|")
_NUMBER: Final = _matching("[0-9]{1,9}")
_WORD: Final = _matching("[a-z0-9][a-z0-9-]{0,19}")
_REFSPEC: Final = _matching(r"[+^]?(?!.*://)[\w./*@#%+=,~-]*(?::[\w./*@#%+=,~-]*)?")

# By section, whether it is one of several with names, and key. Whatever is not here, commands do not get.
_HARMLESS: Final[dict[tuple[str, bool, str], Callable[[str], str | None]]] = {
    ("core", False, "repositoryformatversion"): _NUMBER,
    **{
        ("core", False, key): _BOOL
        for key in (
            "bare",
            "filemode",
            "ignorecase",
            "precomposeunicode",
            "protecthfs",
            "protectntfs",
            "quotepath",
            "sparsecheckout",
            "sparsecheckoutcone",
            "symlinks",
            "trustctime",
        )
    },
    **{
        ("core", False, key): _WORD
        for key in ("autocrlf", "checkstat", "eol", "logallrefupdates", "safecrlf", "untrackedcache")
    },
    **{
        ("extensions", False, key): _WORD
        for key in (
            "compatobjectformat",
            "objectformat",
            "preciousobjects",
            "refstorage",
            "relativeworktrees",
            "worktreeconfig",
        )
    },
    ("extensions", False, "partialclone"): _plain,
    ("index", False, "version"): _NUMBER,
    ("index", False, "sparse"): _BOOL,
    ("init", False, "defaultbranch"): _plain,
    ("user", False, "name"): _plain,
    ("user", False, "email"): _plain,
    ("pull", False, "rebase"): _WORD,
    ("pull", False, "ff"): _WORD,
    ("merge", False, "ff"): _WORD,
    ("push", False, "default"): _WORD,
    ("push", False, "autosetupremote"): _BOOL,
    ("fetch", False, "prune"): _BOOL,
    ("rebase", False, "autosquash"): _BOOL,
    ("rebase", False, "autostash"): _BOOL,
    ("status", False, "showuntrackedfiles"): _WORD,
    ("diff", False, "renames"): _WORD,
    ("remote", True, "url"): _address,
    ("remote", True, "pushurl"): _address,
    ("remote", True, "fetch"): _REFSPEC,
    ("remote", True, "push"): _REFSPEC,
    ("remote", True, "mirror"): _WORD,
    ("remote", True, "prune"): _BOOL,
    ("remote", True, "promisor"): _BOOL,
    ("remote", True, "partialclonefilter"): _matching("[a-z]+:[a-z0-9=]{1,20}"),
    ("branch", True, "remote"): _followed,
    ("branch", True, "merge"): _REFSPEC,
    ("branch", True, "rebase"): _WORD,
    ("submodule", True, "url"): _address,
    ("submodule", True, "branch"): _plain,
    ("submodule", True, "active"): _BOOL,
    ("submodule", True, "ignore"): _WORD,
    # Not `!command`.
    ("submodule", True, "update"): _matching("checkout|rebase|merge|none"),
}
