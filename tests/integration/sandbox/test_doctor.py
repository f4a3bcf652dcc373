"""``toolcrib doctor``, as a person and as a script runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.wait_until import PATIENCE


def doctor(*words: str, before: tuple[str, ...] = (), data: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [*before, sys.executable, "-c", "from toolcrib.cli.main import main; main()", "doctor", *words]
    env = os.environ | ({"TOOLCRIB_DATA_DIR": str(data)} if data else {})
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=env)


def test_doctor_reports_isolation_to_a_person() -> None:
    result = doctor()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("Commands are on: isolation is 'namespaces'")
    assert "Fix: " in result.stdout


def test_doctor_suggests_no_remedy_that_cannot_work() -> None:
    """The unit's own cgroup contains the server, so it cannot pass on what was delegated to it."""
    gaps = {gap["name"]: gap for gap in json.loads(doctor("--json").stdout)["gaps"]}
    if os.access("/sys/fs/cgroup/memory", os.W_OK):
        assert "cgroups" not in gaps
    else:
        assert "DelegateSubgroup=" in gaps["cgroups"]["remedy"]


def test_doctor_reports_isolation_to_a_script() -> None:
    result = json.loads(doctor("--json").stdout)
    assert (result["level"], result["offered"], result["overlay"]) == ("namespaces", True, True)
    assert {"seccomp", "pid-namespace", "no-survivors", "memory-bomb", "fork-bomb"} <= set(result["passed"])
    assert not [gap for gap in result["gaps"] if gap["lowers_the_level"]]


def test_commands_run_where_the_server_may_do_less_than_they() -> None:
    """As in some containers: hard limits below those that a command usually gets."""
    result = json.loads(doctor("--json", before=("prlimit", "--nofile=1024:1024")).stdout)
    assert result["level"] == "namespaces", result["gaps"]


def test_commands_run_on_copies_where_the_data_directory_can_have_no_overlay(tmp_path: Path) -> None:
    """As in a container without a volume: its root is an overlay, on which no other can write."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    mounted = "mount -t overlay overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work merged"
    script = f'cd {tmp_path} && {mounted} && mkdir merged/data && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"'
    on_an_overlay = ("unshare", "--map-current-user", "--keep-caps", "--mount", "sh", "-ec", script, "sh")
    data = tmp_path / "merged" / "data"
    result = json.loads(doctor("--json", before=on_an_overlay, data=data).stdout)
    assert (result["level"], result["overlay"]) == ("namespaces", False), result
    [gap] = [gap for gap in result["gaps"] if gap["name"] == "overlay"]
    assert str(data) in gap["fact"]
    assert "a volume" in gap["remedy"]


def test_the_probe_leaves_nothing_in_the_data_directory(tmp_path: Path) -> None:
    assert json.loads(doctor("--json", data=tmp_path).stdout)["overlay"] is True
    assert list((tmp_path / "staging").iterdir()) == []


def test_doctor_leaves_nothing_in_the_data_directory_of_another_user(tmp_path: Path) -> None:
    """What root created there, the server's user could not enter."""
    theirs = Path("/var/tmp")
    if os.geteuid() == 0:
        theirs = tmp_path
        os.chown(theirs, 65_534, 65_534)
    assert os.access(theirs, os.W_OK)
    assert json.loads(doctor("--json", data=theirs).stdout)["level"] == "namespaces"
    assert not (theirs / "staging").exists()
