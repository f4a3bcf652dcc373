"""The author of commits is read from git's configuration files, the repository's first."""

from pathlib import Path

import pytest

from toolcrib.local.git_identity import git_identity


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git").mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    "text",
    [
        "[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n",
        '[core]\n\teditor = vi\n[User]\n  Name = "Ada Lovelace" ; a comment\n  email=ada@example.com # another\n',
        '[user "work"]\nname = Nobody\n[user]\nname = Ada Lovelace\nemail = ada@example.com\n[alias]\nname = x\n',
    ],
)
def test_the_identity_of_the_user_is_found(home: Path, tree: Path, text: str) -> None:
    (home / ".gitconfig").write_text(text)

    assert git_identity(tree) == ("Ada Lovelace", "ada@example.com")


def test_the_repository_takes_precedence(home: Path, tree: Path) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[user]\nname = Ada\nemail = ada@home.example\n")
    (tree / ".git" / "config").write_text("[user]\nemail = ada@work.example\n")

    assert git_identity(tree) == ("Ada", "ada@work.example")


@pytest.mark.parametrize("text", ["", "[user]\nname = Ada\n", "[user]\nname = A\x1b[31m\nemail = a@b\n", "\x00\xff"])
def test_without_a_whole_identity_there_is_none(home: Path, tree: Path, text: str) -> None:
    (home / ".gitconfig").write_text(text)
    (tree / ".git" / "config").mkdir()

    assert git_identity(tree) is None
