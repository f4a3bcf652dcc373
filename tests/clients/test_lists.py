"""The page of deliberate differences is generated from the clients' tables."""

import subprocess
import sys

from tests.conftest import ROOT


def test_the_page_of_differences_matches_the_tables() -> None:
    script = ROOT / "scripts" / "compatibility.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout
