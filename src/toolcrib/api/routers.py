"""Routers of the HTTP API: what all their routes have in common."""

from typing import Final

from fastapi import APIRouter
from fastapi.routing import APIRoute

from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute

API_PREFIX: Final = "/api/v1"


def api_router(prefix: str = "", *, tag: str, needs_login: bool = True, errors: tuple[str, ...] = ()) -> APIRouter:
    """Create a router below ``/api/v1``.

    Its routes are complete, so that the application can use them as they are: see ``create_app``.

    Args:
        prefix: What the paths of its routes have in common.
        tag: The heading of its routes in the OpenAPI document.
        needs_login: Whether all its routes do.
        errors: The codes of the errors that all its routes may return, for the OpenAPI document.
    """
    access = ("INVALID_TOKEN", "FORBIDDEN") if needs_login else ()
    return APIRouter(
        prefix=f"{API_PREFIX}{prefix}",
        tags=[tag],
        route_class=StrictRoute,
        responses=examples(*access, *errors),
        generate_unique_id_function=operation_id,
    )


def operation_id(route: APIRoute) -> str:
    """Return the operation id: generated clients use the names of our functions."""
    return route.name
