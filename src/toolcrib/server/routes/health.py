"""Whether this server can serve; for load balancers."""

from typing import Literal

from fastapi import APIRouter, HTTPException
from pydantic import Field

import toolcrib
from toolcrib.server.errors import examples
from toolcrib.server.openapi import PUBLIC
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Shown
from toolcrib.storage.health import answers

router = APIRouter(tags=["health"])


class HealthAnswer(Shown):
    status: Literal["ok"] = "ok"
    database: Literal["ok"] = "ok"
    version: str = Field(examples=["0.1.0"])
    node: str = Field(examples=["node-1"])


@router.get("/health", openapi_extra=PUBLIC, responses=examples("UNAVAILABLE"))
async def health(services: Injected) -> HealthAnswer:
    """Answers 200 when the database does, and 503 when it does not."""
    if not await answers(services.database):
        raise HTTPException(503, "The database does not answer.", {"Retry-After": "5"})
    return HealthAnswer(version=toolcrib.__version__, node=services.settings.node)
