"""Put a defect into the checkout, and take it out again, whatever ends the command meanwhile."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.planted.defects import Planted

_WEB_SOURCE = "web/"


class Checkout:
    """The files that the tests run: an editable install and every process that tests start read them here."""

    def __init__(self, root: Path, notes: Path) -> None:
        self._root = root
        # The sound file stands here as long as it is replaced.
        self._sound = notes / "sound"
        self._built = root / "src" / "toolcrib" / "api" / "web"
        notes.mkdir(parents=True, exist_ok=True)

    def is_clean(self) -> bool:
        folders = ["src", "tests", "web", ":!tests/planted"]
        command = ["git", "-c", f"safe.directory={self._root}", "status", "--porcelain", "--", *folders]
        return not subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=True).stdout

    @contextmanager
    def planted(self, planted: Planted) -> Iterator[None]:
        self._replace(planted)
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Put the sound file back, if one is replaced: also what a command that was killed left behind."""
        if not self._sound.exists():
            return
        note = json.loads(self._sound.read_text())
        path = self._root / note["path"]
        _forget_compiled(path)
        # In one step: a kill in between leaves either text, and the note.
        new = path.with_name(f".{path.name}.sound")
        new.write_text(note["text"])
        new.chmod(note["mode"])
        os.replace(new, path)
        if note["path"].startswith(_WEB_SOURCE):
            self._build()
        self._sound.unlink()

    def _replace(self, planted: Planted) -> None:
        path = self._root / planted.path
        note = {"path": planted.path, "text": path.read_text(), "mode": path.stat().st_mode & 0o777}
        new = self._sound.with_suffix(".new")
        new.write_text(json.dumps(note))
        os.replace(new, self._sound)
        try:
            path.write_text(planted.text)
            _forget_compiled(path)
            if planted.path.startswith(_WEB_SOURCE):
                self._build()
        except BaseException:
            self.restore()
            raise

    def _build(self) -> None:
        """Build the web UI into the package, where the server finds it."""
        shutil.rmtree(self._built, ignore_errors=True)
        subprocess.run([self._root / "scripts" / "setup", "web"], cwd=self._root, check=True, capture_output=True)


def _forget_compiled(path: Path) -> None:
    # Python compares a time in seconds and a size, which may be the same for both texts.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)
