"""The web UI's TypeScript types for the API match the OpenAPI description."""

import subprocess
import sys

from tests.conftest import ROOT


def test_the_types_of_the_web_ui_match_the_api() -> None:
    script = ROOT / "scripts" / "api_types.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stderr
