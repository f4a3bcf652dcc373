"""A model whose response depends only on the request, so that it can be asked again after any crash."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes import strictness, wires
from tests.fakes.model_server import KEY, NDJSON, Answer, ModelServer, Received, model_server_beside, plain
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
def working_model(address: str = "127.0.0.1") -> Iterator[ModelServer]:
    """The strict fake on its own loop; for each task it makes ten turns of file tools and commands."""
    with model_server_beside(ModelServer(address=address, responder=_answered)) as fake:
        yield fake


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


def said(text: str, *calls: tuple[str, dict[str, Any]], held: asyncio.Event | None = None) -> Answer:
    """Return a response of an OpenAI-compatible model. ``held``: its end is sent only after this event."""
    scene = Scene(
        text=text,
        calls=tuple(SceneCall(f"call_{new_id()}", name, json.dumps(args)) for name, args in calls),
        reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
    )
    return Answer(tuple(wires.chat_completions(scene, "fake")), held=held)


def task_of(message: dict[str, Any]) -> int | None:
    """Return the task that a message of the user sets, if it does."""
    found = _TASK.search(json.dumps(message["content"]))
    return int(found[1]) if found else None


def _path_state(messages: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the task and how many of its turns are done."""
    task, turns = -1, 0
    for message in messages:
        if message["role"] == "user" and (found := task_of(message)) is not None:
            task, turns = found, 0
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
