"""A model whose response depends only on the request, so that it can be asked again after any crash."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes import strictness, wires
from tests.fakes.model_server import KEY, NDJSON, Answer, ModelServer, Received, model_server, plain
from tests.fakes.scripted_turns import Scene, SceneCall
from toolcrib.core.ids import new_id
from toolcrib.core.model_stream import FinishReason

TURNS = 10
# Turns that also run a shell command.
SHELL_TURNS = (2, 6)
PROVIDERS = ("openai-compatible", "anthropic", "ollama")
_TASK = re.compile(r"Task (\d+)")


def folder(task: int) -> str:
    return f"/task-{task}"


@contextmanager
def working_model() -> Iterator[ModelServer]:
    """The strict fake on its own loop; for each task it makes ten turns of file tools and commands."""
    ready, held = threading.Event(), list[ModelServer]()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with model_server() as fake:
            fake._scripted = _answered  # type: ignore[method-assign]
            stop.append((asyncio.get_running_loop(), asyncio.Event()))
            held.append(fake)
            ready.set()
            await stop[0][1].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield held[0]
    finally:
        loop, event = stop[0]
        loop.call_soon_threadsafe(event.set)
        thread.join(10)


def _answered(request: Received) -> Answer:
    path, body = request.path.split("?")[0], request.body
    if path.endswith("/models") or path in ("/api/tags", "/api/show"):
        return plain(200, {"object": "list", "data": [], "models": [], "has_more": False})
    if path.startswith("/api/"):
        refusal, make = strictness.ollama_refusal(body), wires.ollama
    elif path.endswith("/v1/messages"):
        refusal, make = strictness.anthropic_refusal(body, wires.SIGNATURE), wires.anthropic
    else:
        refusal, make = strictness.openai_refusal(body), wires.chat_completions
    if refusal is not None or KEY not in json.dumps(dict(request.headers)):
        return plain(400, {"type": "error", "error": {"type": "invalid_request_error", "message": refusal}})
    content_type = NDJSON if make is wires.ollama else "text/event-stream"
    return Answer(tuple(make(_scene(*_path_state(body["messages"])), body["model"])), content_type=content_type)


def _path_state(messages: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the task and how many of its turns are done."""
    task, turns = -1, 0
    for message in messages:
        if message["role"] == "user" and (found := _TASK.search(json.dumps(message["content"]))):
            task, turns = int(found[1]), 0
        called = message.get("tool_calls") or [
            block for block in message["content"] if isinstance(block, dict) and block["type"] == "tool_use"
        ]
        if message["role"] == "assistant" and called:
            turns += 1
    return task, turns


def _scene(task: int, turn: int) -> Scene:
    if turn == TURNS:
        return Scene(text=f"Task {task} is done.")
    here = folder(task)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write", {"path": f"{here}/{turn}.txt", "content": f"{task}-{turn}\n"}),
        ("edit", {"path": f"{here}/log.txt", "old_string": "END", "new_string": f"{turn}\nEND"}),
        ("ls", {"path": here}),
    ]
    if turn == 0:
        calls[1] = ("write", {"path": f"{here}/log.txt", "content": "0\nEND\n"})
    if turn in SHELL_TURNS:
        calls.append(("bash", {"command": f"echo {turn} >> .{here}/shell.txt"}))
    if turn == TURNS // 2:
        # Not repeatable: a process that finds it started must not start it again.
        calls.append(("plan_write", {"title": f"Plan of task {task}", "content": "Go on."}))
    return Scene(
        text=f"Turn {turn}.",
        calls=tuple(SceneCall(f"call_{new_id()}", name, json.dumps(arguments)) for name, arguments in calls),
        reason=FinishReason.TOOL_CALLS,
    )
