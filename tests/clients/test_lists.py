"""The clients' tables can be parsed, and the page of deliberate differences is generated from them."""

import subprocess
import sys

import pytest

from scripts.reqs import read_requirements
from tests.clients.criteria import CLIENTS, read_criteria
from tests.conftest import ROOT


@pytest.mark.parametrize("client", CLIENTS)
def test_every_deliberate_difference_names_a_known_requirement(client: str) -> None:
    known = read_requirements(ROOT / "docs" / "requirements.md")

    assert {one.decided_by for one in read_criteria(client).values() if one.decided_by} <= known.keys()


def test_the_page_of_differences_matches_the_tables() -> None:
    script = ROOT / "scripts" / "compatibility.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout
