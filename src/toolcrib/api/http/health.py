"""Health for load balancers, and the node's status for people."""

from typing import Literal

from fastapi import APIRouter, HTTPException
from pydantic import Field

import toolcrib
from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import PUBLIC, Present
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router, operation_id
from toolcrib.sandbox.sandbox import IsolationLevel
from toolcrib.schemas.schema_base import OutModel
from toolcrib.storage.database import is_online

router = APIRouter(tags=["health"], generate_unique_id_function=operation_id)
# The status route is under the API's prefix; the health routes are not.
status_router = api_router(tag="health")


class HealthOut(OutModel):
    status: Literal["ok"] = "ok"
    database: Literal["ok"] = "ok"
    version: str = Field(examples=["0.1.0"])
    node: str = Field(examples=["node-1"])


class IsolationGapOut(OutModel):
    """A protection that is missing here."""

    name: str
    fact: str
    remedy: str
    open: bool = Field(description="True if the gap lowers the isolation level. False if another protection covers it.")


class IsolationOut(OutModel):
    """The isolation of commands, measured by attempted escapes when the server started."""

    level: IsolationLevel
    minimum: IsolationLevel = Field(description="The lowest isolation level at which commands can run.")
    offered: bool = Field(description="True if commands can run.")
    held: list[str]
    gaps: list[IsolationGapOut]
    overlay: bool


class StatusOut(HealthOut):
    """The status of a node."""

    isolation: IsolationOut


class AliveOut(OutModel):
    status: Literal["ok"] = "ok"


@router.get("/livez", openapi_extra=PUBLIC)
async def live() -> AliveOut:
    """Return 200 while the process works. If it does not answer, restart it."""
    return AliveOut()


@router.get("/readyz", openapi_extra=PUBLIC, responses=examples("UNAVAILABLE"))
async def ready(services: Injected) -> HealthOut:
    """Return 200 if this node takes requests. 503 while it stops or its database does not answer."""
    return await health(services)


@router.get("/health", openapi_extra=PUBLIC, responses=examples("UNAVAILABLE"))
async def health(services: Injected) -> HealthOut:
    """Return the same as `/readyz`."""
    if services.drain.has_begun:
        raise HTTPException(503, "The server is stopping. Use another node.", {"Retry-After": "5"})
    if not await is_online(services.database):
        raise HTTPException(503, "The database is not available.", {"Retry-After": "5"})
    return HealthOut(version=toolcrib.__version__, node=services.settings.node_name)


@status_router.get("/status", responses=examples("UNAVAILABLE"))
async def get_status(principal: Present, services: Injected) -> StatusOut:
    """Return the health of the answering node and the isolation of its commands."""
    healthy = await health(services)
    isolation = IsolationOut.model_validate(await services.sandbox.probe())
    return StatusOut(**healthy.model_dump(), isolation=isolation)
