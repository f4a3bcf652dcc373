"""How errors are told at this face: in the form that OpenAI's clients read. What they mean is decided elsewhere."""

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from fastapi import Request
from starlette.responses import JSONResponse, Response

from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import answer_to

# Clients try again by themselves, and each time would begin another run: only what never began may be repeated.
_AGAIN: Final = frozenset({"RATE_LIMITED", "UNAVAILABLE"})
# What their clients call it; all else has our own code, in small letters.
_CODES: Final[Mapping[str, str]] = {
    "INVALID_TOKEN": "invalid_api_key",
    "RATE_LIMITED": "rate_limit_exceeded",
    "INTERNAL_ERROR": "server_error",
}


class OpenAiRoute(StrictRoute):
    """A route whose refusals are told in their form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_their_way(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - nothing of this face is further out
                return refusal(error, where=f"{request.method} {request.url.path}")

        return handle_their_way


def refusal(error: Exception, *, where: str = "") -> Response:
    """The answer that tells an error; what nobody foresaw is logged, and told only by the log's id."""
    ours = answer_to(error, where=where)
    body = json.loads(bytes(ours.body))
    headers = {name: value for name, value in ours.headers.items() if name not in ("content-length", "content-type")}
    headers["x-should-retry"] = "true" if body["code"] in _AGAIN else "false"
    return JSONResponse(
        {"error": told(body["code"], body["error"], body.get("fields", {}), status=ours.status_code)},
        status_code=ours.status_code,
        headers=headers,
    )


def told(code: str, message: str, fields: Mapping[str, str], *, status: int) -> dict[str, Any]:
    """An error in their form; its first wrong field is the ``param``."""
    flaws = "; ".join(f"{field}: {flaw}" for field, flaw in fields.items()) if code == "VALIDATION_ERROR" else ""
    return {
        "message": f"{message}: {flaws}" if flaws else message,
        "type": _type(status),
        "param": next(iter(fields), None),
        "code": "model_not_found" if code == "NOT_FOUND" and "model" in fields else _CODES.get(code, code.lower()),
    }


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
