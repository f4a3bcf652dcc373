"""Error responses: one table of codes and HTTP statuses, and one envelope for every error."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Final
from uuid import uuid4

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.core.errors import DatabaseUnavailable, ToolcribError, few
from toolcrib.gate.server_failures import NOTHING_CHANGED, server_failure
from toolcrib.storage.database import OperationalError

STATUS: Final[Mapping[str, int]] = {
    "VALIDATION_ERROR": 400,
    # A declared failure of a tool: the request was valid, so the caller has to change it.
    "TOOL_FAILED": 400,
    "INVALID_TOKEN": 401,
    "FORBIDDEN": 403,
    "NOT_PERMITTED": 403,
    "APPROVAL_REQUIRED": 403,
    "APPROVAL_DENIED": 403,
    "GIVEN_UP": 409,
    "APPROVAL_EXPIRED": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "CONFLICT": 409,
    "SUPERSEDED": 409,
    "INTERRUPTED": 409,
    "IDEMPOTENCY_KEY_IN_USE": 409,
    "IDEMPOTENCY_ANSWER_LOST": 409,
    "IDEMPOTENCY_EFFECT_UNKNOWN": 409,
    "TOO_LARGE": 413,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "RATE_LIMITED": 429,
    "INTERNAL_ERROR": 500,
    "MISCONFIGURED": 500,
    "PROVIDER_ERROR": 502,
    "OUTPUT_LIMIT": 502,
    "ANSWER_REFUSED": 502,
    "EMPTY_ANSWER": 502,
    "UNAVAILABLE": 503,
    # Nothing was begun: the same request can be repeated, unlike after UNAVAILABLE.
    "OVERLOADED": 503,
    "QUARANTINED": 503,
    "NOT_ON_DISK": 507,
    # Not 408: clients repeat a request by themselves after that.
    "TIMED_OUT": 504,
}

# Messages for the errors that the web framework raises itself.
_FRAMEWORK: Final[Mapping[int, tuple[str, str]]] = {
    400: ("VALIDATION_ERROR", "The request is malformed."),
    404: ("NOT_FOUND", "No such endpoint. GET /api/v1/openapi.json lists all endpoints."),
    405: (
        "METHOD_NOT_ALLOWED",
        "Method not allowed. The Allow header lists the allowed methods.",
    ),
    429: ("RATE_LIMITED", "Too many attempts."),
    503: ("UNAVAILABLE", "The server is temporarily unavailable. Try again."),
}

_log = structlog.get_logger(__name__)


class ErrorOut(BaseModel):
    """The body of every error response."""

    model_config = ConfigDict(extra="forbid")

    success: bool = Field(default=False, json_schema_extra={"const": False})
    error: str = Field(description="Human-readable message: what is wrong and how to fix it.")
    code: str = Field(description="Stable error code for programs.", json_schema_extra={"enum": list(STATUS)})
    # A factory, because the schema must not say that the default is null: without invalid fields, there is none.
    fields: dict[str, str] | None = Field(
        default_factory=lambda: None, description="What was expected, for each invalid field."
    )


def install(app: FastAPI) -> None:
    """Register the error handlers."""

    async def handle(request: Request, error: Exception) -> Response:
        return answer_to(error, where=f"{request.method} {request.url.path}")

    for kind in (ToolcribError, RequestValidationError, HTTPException, OperationalError, OSError):
        app.add_exception_handler(kind, handle)


def answer_to(error: Exception, *, where: str = "") -> Response:
    """Return the response for an error. An unexpected error is logged; the response has only the log's id."""
    match error:
        case ToolcribError():
            return _answer(error.code, error.message, fields=error.fields, headers=_advice(error))
        case RequestValidationError():
            return _answer("VALIDATION_ERROR", "Validation failed", fields=few(_wrong_fields(error)))
        case HTTPException():
            return _framework_answer(error)
    if (failure := explained(error, where=where)) is not None:
        return answer_to(failure)
    return _answer("INTERNAL_ERROR", log_internal_error(error, where=where))


def explained(error: Exception, *, where: str) -> ToolcribError | None:
    """Log a failure of the database or of the machine, and return it as the client gets it. None for a defect.

    Args:
        where: What failed; it begins with the method of a request.
    """
    reads = where.startswith(("GET ", "HEAD "))
    failure = server_failure(error, NOTHING_CHANGED if reads else _MAY_HAVE_TAKEN_EFFECT)
    if isinstance(failure, DatabaseUnavailable):
        _log.warning("database.unavailable", where=where, error=str(error))
    elif failure is not None:
        _log.error("server.failed", where=where, exc_info=error)
    return failure


class StoppedRequests:
    """Answers the requests that a stopping server cancels: it would answer them with a bare 500, as of a defect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        has_started = False

        async def send_noted(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except asyncio.CancelledError:
            if has_started:
                raise
            # Only the web server cancels this task, and its last act is this answer: nothing is left to be cancelled.
            reads = scope["method"] in ("GET", "HEAD")
            known = "Send it again." if reads else _MAY_HAVE_TAKEN_EFFECT
            await _answer("UNAVAILABLE", f"The server stopped while it answered this. {known}")(scope, receive, send)


_MAY_HAVE_TAKEN_EFFECT: Final = (
    "It is unknown whether it took effect: look before you repeat it, or repeat it with the same Idempotency-Key."
)


def examples(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for its OpenAPI entry: ``responses=examples("CONFLICT")``.

    They refer to ``ErrorOut``. With a model, FastAPI would build a validator for each of some 500 of them at the start.
    """
    answers: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status = STATUS[code]
        entry = answers.setdefault(
            status,
            {
                "description": HTTPStatus(status).phrase,
                "content": {"application/json": {"examples": {}, "schema": {"$ref": _REFERENCE}}},
            },
        )
        example = {"success": False, "error": _EXAMPLES.get(code, HTTPStatus(status).phrase), "code": code}
        entry["content"]["application/json"]["examples"][code] = {"value": example}
    return answers


_REFERENCE: Final = f"#/components/schemas/{ErrorOut.__name__}"
_EXAMPLES: Final[Mapping[str, str]] = {
    "VALIDATION_ERROR": "Validation failed",
    "INVALID_TOKEN": "No valid token found in Authorization header or cookie",
    "FORBIDDEN": "Access forbidden: User is not a member of this workspace",
    "NOT_FOUND": "File not found: /nonexistent/file.txt",
    "CONFLICT": "This is the workspace's last owner. Make another member an owner first.",
    "RATE_LIMITED": "Too many attempts. Try again in 60 s.",
    "IDEMPOTENCY_KEY_IN_USE": "The first request with this Idempotency-Key is being answered. Try again in a moment.",
    "IDEMPOTENCY_KEY_REUSED": "This Idempotency-Key was used for another request. Use a new key for each request.",
}


def _framework_answer(error: HTTPException) -> Response:
    # FastAPI wraps errors raised while it reads the body; the cause says more.
    if isinstance(error.__cause__, ToolcribError):
        return answer_to(error.__cause__)
    code, words = _FRAMEWORK.get(error.status_code, ("INTERNAL_ERROR", error.detail))
    message = words if error.detail == HTTPStatus(error.status_code).phrase else str(error.detail)
    return _answer(code, message, status=error.status_code, headers=error.headers)


def log_internal_error(error: Exception, *, where: str) -> str:
    """Log an unexpected error, and return the message for the client: only the log's id."""
    error_id = uuid4().hex
    _log.error("internal_error", error_id=error_id, where=where, exc_info=error)
    return f"Internal server error. The server log has the details under id {error_id}."


def _wrong_fields(error: RequestValidationError) -> dict[str, str]:
    """Map each field path to what was expected. Never to the given value: it may be a password."""
    return {
        ".".join(str(step) for step in detail["loc"][1:]) or str(detail["loc"][0]): detail["msg"]
        for detail in error.errors()
    }


def _advice(error: ToolcribError) -> dict[str, str]:
    """Return the headers that say what to do about an error."""
    if error.code == "INVALID_TOKEN":
        return {"WWW-Authenticate": "Bearer"}
    if STATUS.get(error.code) != 503 and error.retry_after is None:
        return {}
    return {"Retry-After": str(max(1, ceil(error.retry_after or 1.0)))}


def _answer(
    code: str,
    error: str,
    *,
    fields: Mapping[str, str] | None = None,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    content: dict[str, Any] = {"success": False, "error": error, "code": code}
    if fields:
        content["fields"] = dict(fields)
    return JSONResponse(content, status_code=status or STATUS.get(code, 500), headers=headers)
