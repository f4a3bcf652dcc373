"""``TOOLCRIB_ENV_FILE``: every command of an operator reads the settings of the server from it."""

import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.databases import new_database, urls_of
from tests.wait_until import PATIENCE


def toolcrib(*words: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from toolcrib.cli.main import main; main()", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)


def environment(file: Path, home: Path) -> dict[str, str]:
    # No trace of a server elsewhere, and none of the person who runs the tests.
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "TOOLCRIB_HOME": str(home), "TOOLCRIB_ENV_FILE": str(file)}


def test_an_operator_needs_only_the_file_for_each_command(tmp_path: Path) -> None:
    """As the systemd unit has it. The commands find the database, its owner, and the keys."""
    with new_database() as name:
        urls = urls_of(name)
        file = tmp_path / "toolcrib.env"
        file.write_text(
            f"TOOLCRIB_DATABASE_URL={urls.app}\nTOOLCRIB_SYSTEM_DATABASE_URL={urls.system}\n"
            f"TOOLCRIB_OWNER_DATABASE_URL={urls.owner}\nTOOLCRIB_DATA_DIR={tmp_path / 'data'}\n"
            f"TOOLCRIB_JWT_SECRET={secrets.token_urlsafe(48)}\nTOOLCRIB_AUDIT_SEAL_KEY={secrets.token_urlsafe(48)}\n"
        )
        env = environment(file, tmp_path / "home")

        upgraded = toolcrib("db", "upgrade", env=env)
        assert (upgraded.returncode, "from" in upgraded.stdout or "was" in upgraded.stdout) == (0, True), upgraded
        verified = toolcrib("audit", "verify", env=env)
        assert verified.returncode == 0, verified
        restored = toolcrib("restore", env=env)
        assert restored.returncode == 0, restored
        backed_up = toolcrib("backup", str(tmp_path / "monday"), env=env)
        assert backed_up.returncode == 0, backed_up
        # None of them has taken the directory for a project of local mode.
        assert not (tmp_path / "home").exists()


def test_a_variable_that_is_set_counts_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.env"
    file.write_text("TOOLCRIB_OWNER_DATABASE_URL=postgresql://127.0.0.1:1/of_the_file\n")
    env = environment(file, tmp_path) | {"TOOLCRIB_OWNER_DATABASE_URL": "postgresql://127.0.0.1:1/of_the_variable"}

    ended = toolcrib("db", "upgrade", env=env)

    assert ended.returncode != 0
    assert "of_the_file" not in ended.stderr


@pytest.mark.parametrize("words", [("serve",), ("user", "list"), ("db", "upgrade")], ids=" ".join)
def test_a_file_that_is_missing_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = toolcrib(*words, env=environment(tmp_path / "none.env", tmp_path))

    assert ended.returncode == 2
    assert f"TOOLCRIB_ENV_FILE is '{tmp_path / 'none.env'}', which cannot be read" in ended.stderr
