"""The official conformance suite against our server, for both versions of the protocol.

A file lists the checks that do not apply, each with its reason. The test fails if another check fails, and if a listed
check passes, so that the list stays correct.
"""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.integration.api_mcp.conftest import Served
from tests.integration.mcp.conftest import NODE, PEERS
from tests.wait_until import PATIENCE

SUITE = PEERS / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NOT_APPLICABLE = Path(__file__).parent / "not_applicable.yml"
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT.*")


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_every_applicable_check_passes(served: Served, tmp_path: Path, revision: str) -> None:
    assert SUITE.exists(), "The conformance suite is not installed. Run: make setup"
    process = await asyncio.create_subprocess_exec(
        NODE, SUITE, "server", "--url", served.open_url, "--requirements", revision, "-o", tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    failed, passed = _results(tmp_path)
    assert passed >= 40, said.decode()[-2_000:]
    reasons = YAML(typ="safe").load(NOT_APPLICABLE)[revision]
    assert all(reasons.values()), "Every entry has a reason."
    unexpected = [f"{name}: {words}" for name, words in failed.items() if not _listed(name, reasons)]
    assert not unexpected, "\n".join(unexpected)
    stale = [name for name in reasons if not any(one == name or one.startswith(f"{name}/") for one in failed)]
    assert stale == [], "These pass, and are listed as if they could not."


def _results(folder: Path) -> tuple[dict[str, str], int]:
    """Return each failed check as scenario/check with its error, and how many passed."""
    failed: dict[str, str] = {}
    passed = 0
    for found in sorted(folder.rglob("checks.json")):
        scenario = _STAMP.sub("", found.parent.name).removeprefix("server-")
        for check in json.loads(found.read_text()):
            if check["status"] == "FAILURE":
                failed[f"{scenario}/{check['id']}"] = check.get("errorMessage") or ""
            passed += check["status"] == "SUCCESS"
    return failed, passed


def _listed(name: str, reasons: dict[str, str]) -> bool:
    return name in reasons or name.split("/")[0] in reasons
