"""A data directory knows whose it is: the name of its host may change, and nobody uses another node's disk."""

import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from toolcrib.core.errors import Misconfigured
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.settings import Settings, load_settings


def settings_at(data_dir: Path, **given: Any) -> Settings:
    secret = SecretStr("")
    return load_settings(
        database_url="postgresql://", jwt_secret=secret, audit_seal_key=secret, data_dir=data_dir, **given
    )


def test_identity_is_created_once(tmp_path: Path) -> None:
    assert DiskIdentity.load(tmp_path / "data") is None

    with ThreadPoolExecutor(8) as processes:
        found = set(processes.map(partial(DiskIdentity.ensure, tmp_path / "data"), ["a"] * 20))

    assert found == {DiskIdentity.load(tmp_path / "data")}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["node.json"]


def test_disk_is_not_served_under_another_name_than_its_own(tmp_path: Path) -> None:
    DiskIdentity.ensure(tmp_path, "a")

    with pytest.raises(Misconfigured, match="toolcrib nodes rename a b"):
        DiskIdentity.ensure(tmp_path, "b")


def test_damaged_identity_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{")

    with pytest.raises(Misconfigured, match="damaged"):
        DiskIdentity.ensure(tmp_path, "a")

    assert (tmp_path / "node.json").read_text() == "{"
    # Commands that need no disk still work, such as the one that shows the names.
    assert settings_at(tmp_path).node_name == socket.gethostname()


def test_host_that_gets_another_name_keeps_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLCRIB_NODE_NAME", raising=False)
    DiskIdentity.ensure(tmp_path, "the-name-at-the-first-start")

    renamed = settings_at(tmp_path)

    assert renamed.node_name == "the-name-at-the-first-start" != socket.gethostname()
    # A name that an operator chose is not replaced: the server says what to do.
    assert settings_at(tmp_path, node_name="chosen").node_name == "chosen"
