"""What commands see of git's configuration and of a repository outside the project: nothing secret, nothing that runs.

- A repository's own configuration is hidden by its protected name; commands get its harmless settings instead.
- A linked worktree has its repository elsewhere. Commands see it read-only: changes there could be neither reviewed nor
  undone, because they are outside the project.
- The settings of the person, with their global ignore rules, are the system's configuration of commands.
"""

import hashlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from toolcrib.policy.git_config import (
    MAX_BYTES,
    ConfigEdit,
    GitSetting,
    HarmlessConfig,
    InvalidGitConfig,
    apply_edit,
    harmless_config,
    parse_git_config,
)
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.overlay import parent_of

# Where commands see the settings of the person.
_SYSTEM: Final = "/etc/git"
_CONFIGS: Final = frozenset({"config", "config.worktree"})
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_POINTER: Final = 5_000


def is_git_config(path: str) -> bool:
    """Whether the path is that of a repository's configuration, by its name."""
    *folders, name = path.split("/")
    return name in _CONFIGS and ".git" in folders


def visible_configs(root: Path, masked: Collection[str]) -> dict[str, HarmlessConfig]:
    """Return what commands get of the masked paths below a root that are configurations of git."""
    configs = {}
    for path in filter(is_git_config, masked):
        text = _read_below(root, path)
        if text is not None:
            configs[path] = harmless_config(text, folder=path.rpartition("/")[0])
    return configs


def config_edit(mount: ViewMount, path: str, written: bytes) -> ConfigEdit | None:
    """Return the real configuration with what a command changed in its view of it; None if no setting differs.

    Raises ``InvalidGitConfig`` if there is none that can be parsed.
    """
    real = _read_below(mount.root, path)
    if real is None:
        raise InvalidGitConfig("it is gone")
    return apply_edit(real, mount.substitutes[path], written, folder=path.rpartition("/")[0])


def _read_below(root: Path, path: str) -> bytes | None:
    """Read a file without following links. None if it is no file, too large, or cannot be read."""
    try:
        with parent_of(root, path) as (folder, name):
            return _read(os.open(name, _FILE, dir_fd=folder))
    except OSError:
        return None


def _read(descriptor: int, most: int = MAX_BYTES) -> bytes | None:
    try:
        # `open` refuses the descriptor of a directory, and leaves it open.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            text = file.read(most + 1)
    finally:
        os.close(descriptor)
    return text if len(text) <= most else None


@dataclass(frozen=True, slots=True)
class OutsideRepository:
    """The repository of a project whose `.git` is a file. ``common`` is its folder, or None if commands do not see it.

    Attributes:
        pointer: What the `.git` file names.
    """

    pointer: Path
    common: Path | None = None

    @classmethod
    def of(cls, project: Path) -> "OutsideRepository | None":
        """Return it, or None if the project is no linked worktree and no submodule, or has its repository inside."""
        text = _read_below(project, ".git")
        if text is None or not text.startswith(b"gitdir:") or len(text) > _MAX_POINTER:
            return None
        pointer = Path(os.path.normpath(project / os.fsdecode(text.removeprefix(b"gitdir:").strip())))
        if pointer.is_relative_to(project):
            return None
        return cls(pointer, _common(pointer, project))

    def mounts(self, target: str) -> list[ViewMount]:
        """Return the mount of the repository at its own path, which the `.git` file names."""
        if self.common is None:
            return []
        # Submodules have repositories of their own in `modules`.
        masked = [f"worktrees/{self.pointer.name}/config.worktree", "config", "config.worktree", "modules"]
        configs = {path: text for path in masked[:-1] if (text := _read_below(self.common, path)) is not None}
        substitutes = {path: harmless_config(text).text for path, text in configs.items()}
        return [ViewMount("repository", self.common, target, masked=frozenset(masked), substitutes=substitutes)]


def _common(pointer: Path, project: Path) -> Path | None:
    """Return the repository's folder if it says itself that the project is one of its worktrees.

    Otherwise a `.git` file could name any folder of this machine. Git writes the way back when it adds a worktree.
    """
    common = pointer.parent.parent
    try:
        if pointer.parent.name != "worktrees" or pointer.resolve(strict=True) != pointer:
            return None
        back, shared = _read_below(pointer, "gitdir"), _read_below(pointer, "commondir")
        is_back = back is not None and Path(os.path.normpath(pointer / os.fsdecode(back.strip()))) == project / ".git"
        is_shared = shared is not None and os.path.normpath(pointer / os.fsdecode(shared.strip())) == str(common)
        is_owned = common.stat().st_uid == project.stat().st_uid
    except (OSError, ValueError):
        return None
    return common if is_back and is_shared and is_owned and (common / "HEAD").is_file() else None


class PersonalGitSettings:
    """The harmless settings of a person's own configuration files, those that take precedence last."""

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self._files = tuple(files)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables for commands."""
        return {"GIT_CONFIG_SYSTEM": f"{_SYSTEM}/config"} if self._files else {}

    def mounts(self, staging: Path) -> list[ViewMount]:
        """Return a read-only mount with the settings as of now, and with the person's global ignore rules."""
        if not self._files:
            return []
        texts = [text for file in self._files if (text := _read_file(file)) is not None]
        config = b"".join(harmless_config(text).text for text in texts)
        ignored = self._excludes(texts)
        if ignored is not None:
            config += f"[core]\n\texcludesFile = {_SYSTEM}/ignore\n".encode()
        digest = hashlib.sha256(b"\0".join((config, ignored or b""))).hexdigest()[:24]
        folder = staging / f"git-{digest}"
        if not folder.is_dir():
            _publish(folder, {"config": config, "ignore": ignored or b""})
        return [ViewMount("git", folder, _SYSTEM)]

    def _excludes(self, texts: Sequence[bytes]) -> bytes | None:
        named = None
        for text in texts:
            with suppress(InvalidGitConfig):
                named = _excludes_file(parse_git_config(text)) or named
        # Git's default is beside its configuration in XDG_CONFIG_HOME, which comes first.
        return _read_file(Path(named).expanduser() if named else self._files[0].with_name("ignore"))


def _excludes_file(settings: Sequence[GitSetting]) -> str | None:
    values = [one.value for one in settings if (one.section, one.subsection, one.key) == ("core", None, "excludesfile")]
    return values[-1] if values else None


def _read_file(file: Path) -> bytes | None:
    """Read a file of the person, who may have it behind a link."""
    try:
        return _read(os.open(file, _FILE & ~os.O_NOFOLLOW))
    except OSError:
        return None


def _publish(folder: Path, texts: Mapping[str, bytes]) -> None:
    """Create a folder with its files in one step: another command may need the same."""
    new = Path(mkdtemp(prefix="git-new-", dir=folder.parent))
    for name, text in texts.items():
        (new / name).write_bytes(text)
        (new / name).chmod(0o644)
    new.chmod(0o755)
    with suppress(OSError):
        new.rename(folder)
