"""Kernel interfaces that a command must not have, tried through the real tools, one by one."""

import json
import platform
import socket
from collections.abc import Iterator

import pytest

from tests.redteam.attacks import Attacks
from tests.redteam.probes import PROGRAM, probes
from tests.redteam.target import Target, made


@pytest.fixture
def port() -> Iterator[int]:
    """A listener on the host, on every address."""
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("tool", ["bash", "bash_start"])
def test_command_gets_nothing_of_the_host(target: Target, attacks: Attacks, port: int, tool: str) -> None:
    attack_from_inside(target, attacks, port, tool)


def attack_from_inside(target: Target, attacks: Attacks, port: int, tool: str) -> None:
    """Try every probe in a command, and check the kernel's result of each."""
    assert platform.machine() == "x86_64", "these numbers are those of x86_64: write the table of this machine"
    every = probes(port)
    listed = [[probe.name, probe.kind, probe.arguments] for probe in every]
    for path, content in (("/probes.json", json.dumps(listed)), ("/probes.py", PROGRAM)):
        made(target.call("write", {"path": path, "content": content, "overwrite": True}))

    lines = _output(target, tool).splitlines()
    # The attacks ask for the network, so the result ends with a hint how to get it.
    answers = dict(json.loads(line) for line in lines if not line.startswith("[the network is closed"))

    assert set(answers) == {probe.name for probe in every}
    for probe in every:
        attacks.judge(f"{tool}: {probe.name}", held=probe.held(answers[probe.name]), how=answers[probe.name])


def _output(target: Target, tool: str) -> str:
    result = made(target.call(tool, {"command": "/usr/bin/python3 -I probes.py 2>&1"}))["result"]
    if tool == "bash":
        return str(result["output"])
    reading = {"process_id": result["metadata"]["processId"], "offset": 10_000_000, "wait": 30}
    while made(target.call("bash_output", reading))["result"]["metadata"]["running"]:
        pass
    said: str = made(target.call("bash_output", reading | {"offset": 0}))["result"]["output"]
    return said.rpartition("\n[ended")[0]
