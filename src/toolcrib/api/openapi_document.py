"""The OpenAPI document, from which clients are generated. Adds what FastAPI cannot know."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import create_model

from toolcrib.api.auth.principal import ACCESS_COOKIE
from toolcrib.api.tool_results import RESULTS

# For routes without authentication: ``openapi_extra=PUBLIC``.
PUBLIC: Final[dict[str, Any]] = {"security": []}

_DESCRIPTION: Final = """
A versioned workspace and guarded tools for language models.

Log in, then send `Authorization: Bearer <access token>`. Programs can send an API key instead.
Every error is `{"success": false, "error": …, "code": …, "fields": …}`; programs should check `code`.
"""


def operation_id(route: APIRoute) -> str:
    """Return the operation id: generated clients use the names of our functions."""
    return route.name


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document."""
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION.strip(), routes=app.routes)
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "An access token or an API key."},
        "cookie": {"type": "apiKey", "in": "cookie", "name": ACCESS_COOKIE},
    }
    document["security"] = [{"token": []}, {"cookie": []}]
    for path in document["paths"].values():
        for operation in path.values():
            # Validation errors are 400 here, in the envelope of all errors.
            operation["responses"].pop("422", None)
    document["components"]["schemas"] |= _results_of_tools()
    for unused in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(unused, None)
    return document


def _results_of_tools() -> dict[str, Any]:
    """Return `ToolResults`: lists the results of all tools by name, because all tools share one URL."""
    fields: dict[str, Any] = {name: (result, ...) for name, result in RESULTS.items()}
    words = "The result schema of each tool, by tool name. Not a response itself."
    results = create_model("ToolResults", __doc__=words, **fields)
    schema = results.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    shared: dict[str, Any] = schema.pop("$defs")
    return {**shared, "ToolResults": schema}
