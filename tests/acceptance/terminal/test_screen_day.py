"""A day at the terminal: the project's instructions, a skill, an image, npm with a granted host, a kill, and undo."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.local_machine import Laptop, install_node, laptop, resolve_to_loopback
from tests.acceptance.terminal.claude import Claude, content, turn, use_claude
from tests.acceptance.terminal.screens import looks_like
from tests.acceptance.terminal.test_screen_input import PIXEL
from tests.acceptance.terminal.tmux import tmux
from tests.fakes.npm_registry import NpmRegistry, npm_registry
from tests.fakes.package_registry import HOST

RULE = "Run `npm test` before you say that you are done."
SKILL = """---
name: release-notes
description: Write release notes. Use it when asked for notes or a changelog.
---
Start with the date, then one line for each change, newest first.
"""
NOTES = "# 2026-11-18\n\n- Sums use tiny-sum 1.0.0.\n"
PACKAGE = {"name": "shop", "version": "1.0.0", "private": True, "scripts": {"test": "node test.js"}}
TEST = """const sum = require('tiny-sum')
if (sum(2, 3) !== 5) process.exit(1)
console.log('1 test passed')
"""
FILES = {
    "AGENTS.md": f"# Shop\n\n{RULE}\n",
    ".agents/skills/release-notes/SKILL.md": SKILL,
    ".gitignore": "node_modules/\n",
    "package.json": json.dumps(PACKAGE, indent=2) + "\n",
    "test.js": TEST,
}


@pytest.fixture
def registry() -> Iterator[NpmRegistry]:
    with npm_registry() as made:
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
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    (made / "sketch.png").write_bytes(PIXEL)
    for path in made.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return made


@pytest.mark.long
def test_a_day_with_npm_a_granted_host_a_kill_and_undo(own: Laptop, project: Path, registry: NpmRegistry) -> None:
    before, claude = content(project), Claude()
    installs = f"npm install tiny-sum --registry {registry.url} && npm test"
    looks_up = f"npm view tiny-sum version --registry {registry.url}"
    use_claude(own, claude)
    own.variables |= {
        "PATH": f"{install_node(own)}:/usr/local/bin:/usr/bin:/bin",
        "TOOLCRIB_ALLOWED_PRIVATE_COMMAND_HOSTS": registry.authority,
    }

    claude.script = [
        turn("The sketch shows a sum. I install a package for it.", ("bash", {"command": installs})),
        turn("The network is closed, so I ask for it.", ("bash", {"command": installs, "hosts": [registry.authority]})),
    ]
    with tmux(own, "chat", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.paste(f"{project}/sketch.png")
        chat.shows("+ /sketch.png")
        chat.says("Build what the sketch shows")
        looks_like(chat, "day-host", f"Contacts {HOST}", "y approve")
        assert registry.requests == []
        os.kill(chat.process, signal.SIGKILL)
        chat.ends()

    first, second = claude.asked
    assert RULE in json.dumps(first["system"])
    assert "release-notes" in json.dumps(first["system"])
    assert "one line for each change" not in json.dumps(first)
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    assert image in [block.get("source") for message in first["messages"] for block in message["content"]]
    assert "[the network is closed for this command." in json.dumps(second["messages"][-1])

    claude.script = [turn("Installed, and the test passes.")]
    with tmux(own, "chat", "--continue", at=project) as chat:
        chat.shows("The network is closed, so I ask for it.", "y approve")
        chat.press("a")
        chat.shows("Always approve in this session:", "o another")
        # A rule for exactly this command, then one for the host alone.
        chat.press("o", "o")
        looks_like(chat, "day-always", "Always approve in this session:", HOST)
        chat.press("y")
        looks_like(chat, "day-installed", "Installed, and the test passes.", "ready", "$0.")
        assert "1 test passed" in claude.last_results
        assert (project / "node_modules" / "tiny-sum" / "index.js").exists()

        claude.script = [
            turn("", ("read", {"path": "/.agents/skills/release-notes/SKILL.md"})),
            turn("", ("bash", {"command": looks_up, "hosts": [registry.authority]})),
            turn("", ("write", {"path": "/RELEASE.md", "content": NOTES})),
            turn("The notes are in `RELEASE.md`."),
        ]
        chat.says("Write the release notes")
        # The host is not asked about again.
        chat.shows("The notes are in RELEASE.md.", "ready")
        assert (project / "RELEASE.md").read_text() == NOTES
        told = json.dumps(claude.asked[-1]["messages"])
        assert "one line for each change, newest first." in told
        assert "1.0.0" in json.dumps(claude.asked[-2]["messages"][-1])

        chat.press("C-g")
        chat.shows("would be removed: /RELEASE.md", "y yes")
        chat.press("y")
        chat.shows("Undone: 1 file.")
        chat.press("C-g")
        looks_like(chat, "day-undo", "would be removed: /package-lock.json", "y yes")
        chat.press("y")
        chat.shows("Undone:", without="y yes")
        chat.until(lambda _: content(project) == before, "The project as it was in the morning")
        chat.press("C-d")
        chat.ends()

    assert {"GET /tiny-sum", "GET /tiny-sum/-/tiny-sum-1.0.0.tgz"} <= set(registry.requests)
    assert claude.script == []
