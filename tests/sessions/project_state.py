"""Everything about a project that undo must restore: its tree, and what git says about its repositories."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.sessions.project_builder import Person

# By name: `tree/<path>` for a path outside of git's own folders, `git/<repository>/<what>` for a value of git.
State = dict[str, str]


def project_state(person: Person) -> State:
    """Return the state of a project, read as the person would."""
    found: State = {}
    repositories = []
    for path in _walk(person.project):
        name = str(path.relative_to(person.project))
        if path.name == ".git":
            repositories.append(os.path.dirname(name) or ".")
        if path.name != ".git" or not path.is_dir():
            found[f"tree/{name}"] = _described(path)
    for repository in repositories:
        found |= {f"git/{repository}/{what}": value for what, value in _git_values(person, repository).items()}
    return found


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return a line for each difference."""
    return [
        f"{name}: {wanted.get(name, 'nothing')} -> {found.get(name, 'nothing')}"
        for name in sorted({*wanted, *found})
        if wanted.get(name) != found.get(name)
    ]


def git_damage(person: Person) -> list[str]:
    """Return what ``git fsck`` complains about, in every repository. Dangling objects are no damage."""
    found = []
    for path in _walk(person.project):
        if path.name == ".git":
            repository = str(path.parent.relative_to(person.project))
            script = f"{_git_in(person, repository)} fsck --full --strict 2>&1 || echo failed"
            lines = person.run(script).splitlines()
            found += [line for line in lines if not line.startswith(("dangling ", "notice: ", "Checking "))]
    return found


def _walk(root: Path) -> Iterator[Path]:
    """Yield every path below a root, but nothing inside a folder ``.git``."""
    for above, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(above, name)
        folders[:] = [name for name in folders if name != ".git"]


def _described(path: Path) -> str:
    status = path.lstat()
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(path)!r}"
    if stat.S_ISDIR(status.st_mode):
        return f"folder {mode}"
    if stat.S_ISREG(status.st_mode):
        return f"file {mode} {_digest(path)}"
    return f"special {stat.S_IFMT(status.st_mode):o} {mode}"


def _digest(path: Path) -> str:
    if os.access(path, os.R_OK):
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return "unreadable"


def _git_in(person: Person, repository: str) -> str:
    """Return the command of git for a repository.

    Git writes absolute paths into a worktree, and commands see the project at ``/project``: until it is repaired, git
    finds a worktree that a command added only if it is told where its folder is.
    """
    link = person.project / repository / ".git"
    written = link.read_text().strip() if link.is_file() else ""
    if not written.startswith(_SEEN_BY_COMMANDS):
        return f"git -C {_quoted(repository)}"
    folder = person.project / written.removeprefix(_SEEN_BY_COMMANDS)
    return f"git -C {_quoted(repository)} --git-dir={_quoted(folder)} --work-tree=."


def _git_values(person: Person, repository: str) -> State:
    def git(command: str) -> str:
        return person.run(f"{_git_in(person, repository)} --no-optional-locks {command}", check=False)

    found = {f"ref {line.split(' ')[0]}": line.split(" ")[1] for line in git(_REFS).splitlines()}
    entries = [entry.split("\t", 1) for entry in git("ls-files -sz").split("\0")[:-1]]
    found |= {f"staged {name}": value for value, name in entries}
    folder = person.project / repository / git("rev-parse --git-dir").rstrip("\n")
    progress = sorted(name for name in os.listdir(folder) if name in _IN_PROGRESS)
    return found | {
        "HEAD": (folder / "HEAD").read_text(),
        "config": git("config --local --list"),
        "stashes": git("stash list --format=%H"),
        "in progress": " ".join(progress),
    }


_SEEN_BY_COMMANDS = "gitdir: /project/"
_REFS = "for-each-ref --format='%(refname) %(objectname)'"
_IN_PROGRESS = {
    "MERGE_HEAD", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "rebase-merge", "rebase-apply",
    "sequencer", "BISECT_LOG",
}  # fmt: skip


def _quoted(path: str | Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
