"""The durable queue's library takes most of a second to import: no program loads it before it needs it."""

import subprocess
import sys

PROGRAM = """
import sys
import toolcrib.api.app, toolcrib.cli.main, toolcrib.wiring.server
import toolcrib.local.in_process_server, toolcrib.local.local_mode
print("dbos" in sys.modules, "sqlalchemy" in sys.modules)
"""


def test_programs_start_without_the_engine() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)

    assert found.stdout.split() == ["False", "False"]
