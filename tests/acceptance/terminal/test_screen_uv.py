"""uv at the terminal: it fails without a host and says why, adds a package once the host is granted, and is undone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.local_machine import Laptop, install_uv, laptop, resolve_to_loopback
from tests.acceptance.terminal.claude import Claude, content, turn, use_claude
from tests.acceptance.terminal.screens import looks_like
from tests.acceptance.terminal.tmux import tmux
from tests.fakes.package_registry import HOST
from tests.fakes.python_index import WHEEL, PythonIndex, python_index

PROJECT = """[project]
name = "shop"
version = "1.0.0"
requires-python = ">=3.11"
dependencies = []
"""
CHECK = """from tiny_sum import tiny_sum

assert tiny_sum(2, 3) == 5
print("1 check passed")
"""
FILES = {".gitignore": ".venv/\n", "pyproject.toml": PROJECT, "check.py": CHECK}


@pytest.fixture
def index() -> Iterator[PythonIndex]:
    with python_index() as made:
        yield made


@pytest.fixture
def own() -> Iterator[Laptop]:
    with laptop() as made:
        resolve_to_loopback(made, HOST)
        yield made


@pytest.fixture
def project(own: Laptop) -> Path:
    made = own.project("shop", below="home")
    for name, text in FILES.items():
        (made / name).write_text(text)
        (made / name).chmod(0o666)
    return made


@pytest.mark.long
def test_uv_adds_a_package_from_a_granted_host_and_is_undone(own: Laptop, project: Path, index: PythonIndex) -> None:
    before, claude = content(project), Claude()
    use_claude(own, claude)
    own.variables |= {
        "PATH": f"{install_uv(own)}:/usr/local/bin:/usr/bin:/bin",
        "TOOLCRIB_ALLOWED_PRIVATE_COMMAND_HOSTS": index.authority,
    }
    adds = f"uv add tiny-sum --default-index {index.simple} && uv run check.py"
    claude.script = [
        turn("I add a package for sums.", ("bash", {"command": adds})),
        turn("The network is closed, so I ask for it.", ("bash", {"command": adds, "hosts": [index.authority]})),
    ]
    with tmux(own, "chat", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.says("Check the sums")
        looks_like(chat, "uv-host", f"Contacts {HOST}", "y approve")
        assert index.requests == []
        assert "[the network is closed for this command." in json.dumps(claude.asked[-1]["messages"][-1])
        # uv made the virtual environment before it needed the network.
        assert {name: (project / name).read_text() for name in FILES} == FILES

        claude.script = [turn("Added, and the check passes.")]
        chat.press("y")
        looks_like(chat, "uv-added", "Added, and the check passes.", "ready")
        assert "1 check passed" in claude.last_results
        assert list(project.glob(".venv/lib/python3*/site-packages/tiny_sum.py"))
        assert "tiny-sum" in (project / "pyproject.toml").read_text()
        assert (project / "uv.lock").exists()

        chat.press("C-g")
        looks_like(chat, "uv-undo", "would be removed: /uv.lock", "y yes")
        chat.press("y")
        chat.shows("Undone:", without="y yes")
        chat.until(lambda _: content(project) == before, "The project as it was")
        assert not (project / ".venv").exists()
        chat.press("C-d")
        chat.ends()

    assert {"GET /simple/tiny-sum/", f"GET /files/{WHEEL}"} <= set(index.requests)
    assert claude.script == []
