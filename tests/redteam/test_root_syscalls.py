"""Kernel interfaces that a command must not have, when the server runs as root. Run as root."""

import os

import pytest

from tests.redteam.attacks import Attacks
from tests.redteam.target import Target
from tests.redteam.test_syscalls import attack_from_inside, port

__all__ = ["port"]

pytestmark = pytest.mark.root


@pytest.mark.parametrize("tool", ["bash", "bash_start"])
def test_command_of_a_root_server_gets_nothing_of_the_host(
    target: Target, attacks: Attacks, port: int, tool: str
) -> None:
    assert os.geteuid() == 0, "these attacks are for root: make campaigns ONLY=redteam-root"
    attack_from_inside(target, attacks, port, tool)
