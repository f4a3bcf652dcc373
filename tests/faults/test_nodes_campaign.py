"""The campaign of ``make nodes``, short: it has its own namespaces, database and nodes, so it is its own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = 20
# After the lease. ``make nodes`` asks for 5; here other tests have the processors, too.
WITHIN_SECONDS = 15
MOST_SECONDS = 600
CHECKOUT = Path(__file__).parents[2]


@pytest.mark.req("SC-1", part="a silent home is taken over")
@pytest.mark.req("SC-2", part="on another node")
@pytest.mark.xdist_group("kill")
def test_twenty_faults_of_three_nodes_lose_and_repeat_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.nodes_campaign", "--forwarding", "--faults", str(FAULTS)]
    command += ["--within", str(WITHIN_SECONDS)]

    # Killed with everything inside if it takes too long or the test is interrupted.
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )

    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-20_000:]
    assert f"{FAULTS} faults in" in ended.stdout
