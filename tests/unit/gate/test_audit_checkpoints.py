"""A node's checkpoints of the audit log, written by several processes at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from toolcrib.gate.audit_checkpoints import read_anchor, write_anchor
from toolcrib.gate.audit_seals import START


def test_concurrent_writes_leave_one_complete_anchor(tmp_path: Path) -> None:
    anchor = tmp_path / "anchor.json"

    with ThreadPoolExecutor(8) as writers:
        for written in [writers.submit(write_anchor, anchor, START) for _ in range(200)]:
            written.result()

    assert read_anchor(anchor) is not None
    assert anchor.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["anchor.json"]
