"""The types by which the web UI speaks to the API are those that the API describes."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.req("AP-3", part="clients are generated from OpenAPI")
def test_the_types_of_the_web_ui_are_what_the_api_says() -> None:
    script = ROOT / "scripts" / "api_types.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stderr
