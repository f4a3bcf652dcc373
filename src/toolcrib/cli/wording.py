"""Words for what happens in a session: what a call is about, how a run ended. Both chats say it in these."""

from collections.abc import Mapping
from typing import Any

from toolcrib.cli.showing import one_line

_LENGTH = 140
_NAMING = ("path", "command", "pattern", "query", "plan_file_path", "name", "url")
_ENDINGS = {
    "turn-limit": "Stopped: it took as many turns as it may.",
    "budget": "Stopped: the model's context is full.",
    "deadline": "Stopped: its time was over.",
    "cancelled": "Stopped.",
    "violation": "Stopped: the agent touched what is out of bounds.",
}


def about(given: object) -> str:
    """What a call is about, in a few words."""
    if not isinstance(given, Mapping):
        return ""
    if "source" in given and "destination" in given:
        return f"{one_line(given['source'], 70)} to {one_line(given['destination'], 70)}"
    for name in _NAMING:
        if isinstance(given.get(name), str):
            return one_line(given[name], _LENGTH)
    paths = given.get("paths")
    return one_line(", ".join(map(str, paths)), _LENGTH) if isinstance(paths, list) else ""


def failure(payload: Mapping[str, Any]) -> str | None:
    """Why a run failed, if it did, from how its end was told."""
    error = payload.get("error")
    if not isinstance(error, Mapping):
        return None
    fields = "; ".join(str(value) for value in (error.get("fields") or {}).values())
    message = fields if fields and error.get("code") == "VALIDATION_ERROR" else error.get("message")
    return one_line(message, 1_000)


def stop(payload: Mapping[str, Any]) -> str | None:
    """Why a run stopped before it was done, if it did."""
    return _ENDINGS.get(str(payload.get("ending")))


def plan_written(payload: Mapping[str, Any]) -> str | None:
    """The path of the plan that a call writes, if it writes one."""
    given = payload.get("input")
    if payload.get("toolName") != "plan_write" or not isinstance(given, Mapping):
        return None
    return str(given.get("path") or "") or None
