"""git's configuration as commands get it: parsed as git parses it, without secrets and without programs."""

import random
import subprocess
from pathlib import Path

import pytest

from toolcrib.policy.git_config import (
    GitSetting,
    InvalidGitConfig,
    apply_edit,
    harmless_config,
    parse_git_config,
)

TYPICAL = b"""\
[core]
\trepositoryformatversion = 1
\tfilemode = false
\tbare = false
\tautocrlf = true ; as on Windows
\tfsmonitor = touch pwned
\thooksPath = /tmp/hooks
\tsshCommand = "ssh -i ~/.ssh/key"
\tpager = less; touch pwned
\teditor = vi
[extensions]
\tobjectFormat = sha256
\tworktreeConfig
[remote "origin"]
\turl = https://ada:hunter2@example.org/ada/shop.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
\tuploadpack = touch pwned
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[user]
\tname = Ada "the first" \\
Lovelace
\temail = ada@example.org
\tsigningKey = hunter2
[credential]
\thelper = store --file hunter2
[http "https://example.org/"]
\textraHeader = Authorization: Basic hunter2
[url "https://x:hunter2@example.org/"]
\tinsteadOf = gh:
[alias]
\tst = !touch pwned
[filter "lfs"]
\tclean = touch pwned
[include]
\tpath = /etc/passwd
[submodule "lib"]
\turl = git@example.org:ada/lib.git
\tupdate = !touch pwned
"""


def by_git(config: Path) -> list[GitSetting] | None:
    """What git itself reads in a file; None if it rejects it."""
    listed = subprocess.run(
        ["git", "config", "--file", config, "--no-includes", "--list", "-z"], capture_output=True, check=False
    )
    if listed.returncode:
        return None
    settings = []
    for line in listed.stdout.decode(errors="surrogateescape").split("\0")[:-1]:
        name, has_value, value = line.partition("\n")
        section, _, rest = name.partition(".")
        subsection, has_subsection, key = rest.rpartition(".")
        settings.append(GitSetting(section, subsection if has_subsection else None, key, value if has_value else None))
    return settings


def test_typical_configuration_keeps_what_is_harmless_and_nothing_else(tmp_path: Path) -> None:
    cleaned = harmless_config(TYPICAL)
    (tmp_path / "config").write_bytes(cleaned.text)

    assert by_git(tmp_path / "config") == [
        GitSetting("core", None, "repositoryformatversion", "1"),
        GitSetting("core", None, "filemode", "false"),
        GitSetting("core", None, "bare", "false"),
        GitSetting("core", None, "autocrlf", "true"),
        GitSetting("extensions", None, "objectformat", "sha256"),
        GitSetting("extensions", None, "worktreeconfig", None),
        GitSetting("remote", "origin", "url", "https://example.org/ada/shop.git"),
        GitSetting("remote", "origin", "fetch", "+refs/heads/*:refs/remotes/origin/*"),
        GitSetting("branch", "main", "remote", "origin"),
        GitSetting("branch", "main", "merge", "refs/heads/main"),
        GitSetting("user", None, "name", "Ada the first Lovelace"),
        GitSetting("user", None, "email", "ada@example.org"),
        GitSetting("submodule", "lib", "url", "git@example.org:ada/lib.git"),
    ]
    assert cleaned.left_out == 14
    assert b"hunter2" not in cleaned.text
    assert b"pwned" not in cleaned.text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://example.org/a.git", "https://example.org/a.git"),
        ("https://tok@example.org/a.git", "https://example.org/a.git"),
        ("https://ada:12#34@example.org/a", None),
        ("https://ada:p/w@example.org/a", None),
        ("https://ada:p?w@example.org/a", None),
        ("https://ada@corp:pw@example.org/a", "https://example.org/a"),
        ("https://example.org/a?private_token=hunter2", "https://example.org/a"),
        ("https://example.org/ghp_0123456789abcdefABCDEF/a", None),
        ("https://example.org/0123456789abcdef0123456789abcdef/a", None),
        ("ssh://git@example.org:22/a", "ssh://git@example.org:22/a"),
        ("ssh://ada:pw@example.org/a", "ssh://example.org/a"),
        ("git@example.org:ada/a.git", "git@example.org:ada/a.git"),
        ("ada@example.org:a.git", "example.org:a.git"),
        ("ext::sh -c 'touch pwned'", None),
        ("fd::3", None),
        ("custom://example.org/a", None),
        ("../shop.git", "../shop.git"),
        ("/srv/git/shop.git", "/srv/git/shop.git"),
        ("", ""),
    ],
)
def test_address_of_a_remote_has_no_credentials_and_no_program(address: str, shown: str | None) -> None:
    cleaned = harmless_config(f'[remote "o"]\n\turl = "{address}"\n'.encode())

    assert parse_git_config(cleaned.text) == ([GitSetting("remote", "o", "url", shown)] if shown is not None else [])


def test_any_text_is_parsed_as_git_parses_it(tmp_path: Path) -> None:
    pieces = (
        *("[core]", "[a.B]", '[a "b"]', '[remote "o\\"x"]', "[ a]", "[a]k=v", "\n", "\r\n", "\n\t", " ", "\t", "key"),
        *("Key-2", " = ", "=", "value", '"', '"quo ted"', "\\", "\\n", "\\\n", "\\q", "# note", ";", "é", "\v"),
    )
    config, draw = tmp_path / "config", random.Random(1)
    accepted = 0
    for _ in range(100):
        text = "[s]\n" + "".join(draw.choices(pieces, k=draw.randint(1, 9)))
        config.write_bytes(text.encode())
        expected = by_git(config)
        accepted += bool(expected)
        try:
            assert parse_git_config(text.encode()) == expected, text
        except InvalidGitConfig:
            assert expected is None, text

    assert accepted > 10


def test_cleaned_text_means_to_git_what_it_means_here(tmp_path: Path) -> None:
    names = ("plain", "with space", 'with"quote', "back\\slash", "#12", "é;x", "a.b")
    escaped = [name.replace("\\", "\\\\").replace('"', '\\"') for name in names]
    text = "".join(f'[branch "{name}"]\n\tremote = o\n' for name in escaped)
    cleaned = harmless_config(text.encode())
    (tmp_path / "config").write_bytes(cleaned.text)

    assert by_git(tmp_path / "config") == [GitSetting("branch", name, "remote", "o") for name in names]


@pytest.mark.parametrize(("worktree", "kept"), [("../../../lib", True), ("../../../../lib", False), ("/lib", False)])
def test_working_tree_of_a_submodule_is_inside(worktree: str, *, kept: bool) -> None:
    cleaned = harmless_config(f"[core]\n\tworktree = {worktree}\n".encode(), folder=".git/modules/lib")

    assert bool(cleaned.text) is kept


def test_unknown_extension_is_still_refused_by_git() -> None:
    cleaned = harmless_config(b"[core]\nrepositoryformatversion=1\n[extensions]\nfuture = hunter2\n")

    assert parse_git_config(cleaned.text)[1:] == [GitSetting("extensions", None, "future", "true")]


def test_what_git_rejects_has_no_settings() -> None:
    assert harmless_config(b"[core]\nbare = false\nnot a setting\n").text == b""


def test_edit_of_what_was_seen_keeps_the_rest_of_the_real_configuration() -> None:
    real = TYPICAL + b'# mine\n[branch "fix"]\n\tremote = origin\n\tmerge = refs/heads/fix\n[gc]\n\tauto = 0\n'
    seen = harmless_config(real).text
    without_fix = seen.replace(b'[branch "fix"]\n\tremote = "origin"\n\tmerge = "refs/heads/fix"\n', b"")

    deleted = apply_edit(real, seen, without_fix)
    added = apply_edit(real, seen, seen + b'[branch "new"]\n\tremote = origin\n')
    hostile = apply_edit(real, seen, seen + b"[core]\n\tfsmonitor = touch pwned\n")
    elsewhere = apply_edit(real, seen, seen + b'[branch "new"]\n\tremote = ext::sh\n')

    assert apply_edit(real, seen, seen + b"\n# a comment\n") is None
    assert deleted is not None
    assert deleted.only_branches
    assert deleted.text == TYPICAL + b"# mine\n[gc]\n\tauto = 0\n"
    assert added is not None
    assert added.only_branches
    assert added.text == real + b'[branch "new"]\n\tremote = "origin"\n'
    assert hostile is not None
    assert not hostile.only_branches
    assert elsewhere is not None
    assert not elsewhere.only_branches
