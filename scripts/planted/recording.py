"""Run tests with a recorder in every Python process of the virtualenv."""

import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.planted.defects import read_sources
from scripts.planted.process_recorder import FOLDER, RAW, ROOT, UNDER_WAY, WORKERS
from scripts.planted.reach import Recording, write_recording

LINES = Path(FOLDER) / "lines.sqlite"
_HOOK = Path(sysconfig.get_path("purelib")) / "zz_toolcrib_planted.pth"


def record(arguments: Sequence[str], *, workers: int) -> int:
    """Run tests, and keep which lines each of them ran. Tests that fail are kept too: a recorder is in their way."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-p", "scripts.planted.recording_plugin", *arguments]
    if workers:
        command += ["-n", str(workers), "--dist", "loadgroup"]
    # Before the run, which lasts long: the lines are those of the text that is imported now.
    sources = read_sources(Path(ROOT))
    with _recorders_in_every_process():
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
    # 1: tests failed.
    if status not in (0, 1):
        print(f"pytest ended with {status}; nothing was kept.")
        return 2
    write_recording(Path(RAW), sources, LINES)
    tests = Recording(LINES).tests
    print(f"{len(tests)} tests recorded in {time.monotonic() - began:.0f} s, {LINES.stat().st_size >> 20} MB: {LINES}")
    return 0


@contextmanager
def _recorders_in_every_process() -> Iterator[None]:
    for folder in (RAW, WORKERS):
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir(parents=True)
        # Some tests start programs as another user.
        Path(folder).chmod(0o777)
    here = str(Path(__file__).parent)
    _HOOK.write_text(
        f"import os, sys; os.path.exists({UNDER_WAY!r}) and (sys.path.insert(0, {here!r}), "
        "__import__('process_recorder').start_in_child(), sys.path.remove(" + repr(here) + "))\n"
    )
    Path(UNDER_WAY).touch()
    try:
        yield
    finally:
        Path(UNDER_WAY).unlink()
        _HOOK.unlink()
