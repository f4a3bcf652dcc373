"""``toolcrib doctor`` where a kernel or a container withholds what the sandbox needs: it names it and the remedy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.wait_until import PATIENCE

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
HIDES_PROC = "mount --bind /dev/null /proc/cmdline"
FORBIDS_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces"


def diagnosed(withheld: str) -> tuple[int, dict[str, Any]]:
    """Run it in a namespace from which something was withheld, as container runtimes do."""
    ended = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            f'{withheld} && exec "$0" doctor --json',
            TOOLCRIB,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_a_masked_proc_is_named_with_the_options_that_unmask_it() -> None:
    status, found = diagnosed(HIDES_PROC)

    [gap] = [gap for gap in found["gaps"] if gap["lowers_the_level"]]
    assert (status, found["level"], gap["name"]) == (1, "none", "new-proc")
    for option in ("unmask=ALL", "systempaths=unconfined", "procMount: Unmasked", "hostUsers: false"):
        assert option in gap["remedy"]


def test_forbidden_namespaces_are_named_with_the_profile_and_settings_that_allow_them() -> None:
    status, found = diagnosed(FORBIDS_NAMESPACES)

    [gap] = [gap for gap in found["gaps"] if gap["lowers_the_level"]]
    assert (status, found["level"], gap["name"]) == (1, "none", "new-namespaces")
    assert "deploy/seccomp.json" in gap["remedy"]
    assert "user.max_user_namespaces" in gap["remedy"]
