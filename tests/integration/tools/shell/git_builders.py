"""A git repository in a workspace: an agent's commands run through the gate, a person's directly on disk."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.conftest import WorkspaceFixture

IDENTITY = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
IDENTITY |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"}
# No settings of the machine; submodules from a path are refused by default.
PLAIN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_COUNT": "1"}
PLAIN |= {"GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}


@dataclass(frozen=True)
class GitState:
    """What git itself says about a repository."""

    head: str
    refs: dict[str, str]
    staged: str
    config: str
    stashes: str
    # Of a merge or rebase in progress.
    progress: tuple[str, ...]


@dataclass
class Repository:
    """A repository with two authors."""

    workspace: WorkspaceFixture
    calls: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.workspace.project

    def person(self, script: str, *, check: bool = True) -> str:
        """Run a person's commands on disk."""
        environment = {**os.environ, **IDENTITY, **PLAIN, "HOME": str(self.root.parent), "GIT_EDITOR": "true"}
        done = subprocess.run(
            ["bash", "-ec", script], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    async def agent(self, script: str, *, check: bool = True) -> str:
        """Run an agent's command through the gate. Returns the call's id."""
        outcome = await self.workspace.call("bash", command=f"export GIT_EDITOR=true; {script}")
        assert outcome.succeeded, outcome.error
        assert not check or not outcome.result["is_error"], outcome.result
        if outcome.change_set_id is not None:
            self.calls.append(str(outcome.call_id))
        return str(outcome.call_id)

    async def undo(self, *calls: str, **options: bool) -> dict[str, Any]:
        return await self.workspace.result("undo", calls=list(calls or self.calls), **options)

    def state(self, at: str = ".") -> GitState:
        def git(command: str) -> str:
            return self.person(f"git -C {at} {command} 2>/dev/null || true")

        refs = dict(line.split(" ") for line in git("for-each-ref --format='%(refname) %(objectname)'").splitlines())
        folder = self.root / at / git("rev-parse --git-dir").strip()
        progress = sorted(p.name for p in folder.iterdir() if p.name.isupper() and p.name.endswith(("HEAD", "MODE")))
        progress = [name for name in progress if name not in ("HEAD", "ORIG_HEAD", "FETCH_HEAD")]
        progress += [name for name in ("rebase-merge", "rebase-apply", "sequencer") if (folder / name).exists()]
        return GitState(
            (folder / "HEAD").read_text(), refs, git("ls-files -s"), git("config --local --list"),
            git("stash list --format=%H"), tuple(progress),
        )  # fmt: skip

    def check(self, at: str = ".") -> None:
        """Fail if git finds the repository damaged."""
        done = subprocess.run(
            ["git", "-C", str(self.root / at), "fsck", "--full", "--strict"],
            env={**os.environ, **PLAIN}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        complaints = [
            line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(("dangling", "notice"))
        ]
        assert (done.returncode, complaints) == (0, [])
        self.person(f"git -C {at} log --all --oneline; git -C {at} status; git -C {at} stash list")


def new_repository(workspace: WorkspaceFixture) -> Repository:
    """A person's repository with two commits."""
    repository = Repository(workspace)
    # A while ago: reflogs tell seconds.
    repository.person(
        "export GIT_COMMITTER_DATE=\"$(date -d '1 hour ago' -R)\"; git init -q -b main; echo one > a.txt; "
        "echo 'build/' > .gitignore; git add .; git commit -qm first; echo two > b.txt; git add .; "
        "git commit -qm second"
    )
    return repository
