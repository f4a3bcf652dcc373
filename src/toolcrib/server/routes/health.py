"""Whether this server can serve, for load balancers, and how it stands, for people."""

from typing import Literal

from fastapi import APIRouter, HTTPException
from pydantic import Field

import toolcrib
from toolcrib.sandbox.levels import Level
from toolcrib.server.auth import APerson
from toolcrib.server.errors import examples
from toolcrib.server.openapi import PUBLIC
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Shown
from toolcrib.storage.health import answers

router = APIRouter(tags=["health"])
# What people are told stands with the rest of the API.
status_router = APIRouter(tags=["health"])


class HealthAnswer(Shown):
    status: Literal["ok"] = "ok"
    database: Literal["ok"] = "ok"
    version: str = Field(examples=["0.1.0"])
    node: str = Field(examples=["node-1"])


class GapAnswer(Shown):
    """One thing that does not hold here."""

    name: str
    fact: str
    remedy: str
    open: bool = Field(description="It lowers the level; otherwise it is made good by something else.")


class IsolationAnswer(Shown):
    """How well commands are held, found out by attempted escapes when the server started."""

    level: Level
    minimum: Level = Field(description="Below it, commands are off.")
    offered: bool = Field(description="Whether commands are run at all.")
    held: list[str]
    gaps: list[GapAnswer]
    overlay: bool


class StatusAnswer(HealthAnswer):
    """How a node stands."""

    isolation: IsolationAnswer


@router.get("/health", openapi_extra=PUBLIC, responses=examples("UNAVAILABLE"))
async def health(services: Injected) -> HealthAnswer:
    """Answers 200 when the database does, and 503 when it does not."""
    if not await answers(services.database):
        raise HTTPException(503, "The database does not answer.", {"Retry-After": "5"})
    return HealthAnswer(version=toolcrib.__version__, node=services.settings.node)


@status_router.get("/status", responses=examples("INVALID_TOKEN", "FORBIDDEN", "UNAVAILABLE"), name="get_status")
async def status(principal: APerson, services: Injected) -> StatusAnswer:
    """The health of the node that answers, and how well it holds commands."""
    healthy = await health(services)
    isolation = IsolationAnswer.model_validate(await services.sandbox.probe())
    return StatusAnswer(**healthy.model_dump(), isolation=isolation)
