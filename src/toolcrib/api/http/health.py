"""Health for load balancers, and the node's status for people."""

from typing import Literal

from fastapi import APIRouter
from pydantic import Field

import toolcrib
from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import PUBLIC, Present
from toolcrib.api.http_errors import examples
from toolcrib.api.readiness import CheckState, NodeChecks
from toolcrib.api.routers import api_router, operation_id
from toolcrib.core.errors import NotReady
from toolcrib.sandbox.sandbox import IsolationLevel
from toolcrib.schemas.schema_base import OutModel

router = APIRouter(tags=["health"], generate_unique_id_function=operation_id)
# The status route is under the API's prefix; the health routes are not.
status_router = api_router(tag="health")


class HealthOut(OutModel):
    status: Literal["ok"] = "ok"
    database: Literal["ok"] = "ok"
    version: str = Field(examples=["0.1.0"])
    node: str = Field(examples=["node-1"])


class RecoveryOut(OutModel):
    """Workspaces whose last changes a crash kept from the disk. The log names those that are quarantined."""

    workspaces: int = Field(description="Not recovered yet, including the quarantined ones.")
    quarantined: int = Field(description="Their recovery failed, and is tried again. Their calls get 503.")


class ReadyOut(HealthOut):
    """The state of each check."""

    disk: CheckState
    sandbox: CheckState
    recovery: RecoveryOut


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
async def ready(services: Injected) -> ReadyOut:
    """Return 200 if this node takes requests, with the state of each check.

    503 while it stops, or if its database or its disk does not work. Recovery after a crash does not make it unready:
    a request waits for the recovery of its own workspace only.
    """
    found = await _require_ready(services)
    waiting = services.recovery.status
    return ReadyOut(
        version=toolcrib.__version__,
        node=services.settings.node_name,
        disk=found.disk,
        sandbox=found.sandbox,
        recovery=RecoveryOut(workspaces=waiting.waiting, quarantined=waiting.quarantined),
    )


@router.get("/health", openapi_extra=PUBLIC, responses=examples("UNAVAILABLE"))
async def health(services: Injected) -> HealthOut:
    """Return 200 and 503 as `/readyz` does."""
    await _require_ready(services)
    return HealthOut(version=toolcrib.__version__, node=services.settings.node_name)


async def _require_ready(services: ApiServices) -> NodeChecks:
    if services.drain.has_begun:
        raise NotReady("The server is stopping. Use another node.")
    found = await services.readiness.check(services)
    if found.failed:
        words = " ".join(f"The {name} is not available." for name in found.failed)
        raise NotReady(words, fields={name: str(state) for name, state in found._asdict().items()})
    return found


@status_router.get("/status", responses=examples("UNAVAILABLE"))
async def get_status(principal: Present, services: Injected) -> StatusOut:
    """Return the health of the answering node and the isolation of its commands."""
    healthy = await health(services)
    isolation = IsolationOut.model_validate(await services.sandbox.probe())
    return StatusOut(**healthy.model_dump(), isolation=isolation)
