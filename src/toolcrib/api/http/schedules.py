"""Schedules of a workspace: messages to agents, sent by the clock."""

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.request_tenant import PersonTenant
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.ids import AgentId, ScheduleId
from toolcrib.schemas.schedules import ScheduleCreate, ScheduleOut, ScheduleUpdate
from toolcrib.schemas.schema_base import Page
from toolcrib.schemas.sessions import RunOut

router = api_router("/workspaces/{workspace_id}/schedules", tag="schedules")


@router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def create_schedule(given: ScheduleCreate, tenant: PersonTenant, services: Injected) -> ScheduleOut:
    """Create a schedule. Members only. Its messages are sent as you."""
    made = await services.schedules.rows.create(
        tenant,
        name=given.name,
        cron=given.cron,
        time_zone=given.time_zone,
        agent_id=AgentId(given.agent_id),
        message=given.message,
    )
    return ScheduleOut.model_validate(made)


@router.get("")
async def list_schedules(tenant: PersonTenant, services: Injected) -> Page[ScheduleOut]:
    """List the workspace's schedules by name."""
    return Page[ScheduleOut].of(await services.schedules.rows.list(tenant))


@router.get("/{schedule_id}", responses=examples("NOT_FOUND"))
async def get_schedule(schedule_id: ScheduleId, tenant: PersonTenant, services: Injected) -> ScheduleOut:
    """Return one schedule."""
    return ScheduleOut.model_validate(await services.schedules.rows.get(tenant, schedule_id))


@router.patch("/{schedule_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def update_schedule(
    schedule_id: ScheduleId, given: ScheduleUpdate, tenant: PersonTenant, services: Injected
) -> ScheduleOut:
    """Change, pause or resume a schedule. Only for its user; owners of the workspace may pause it."""
    changed = await services.schedules.rows.update(
        tenant,
        schedule_id,
        name=given.name,
        cron=given.cron,
        time_zone=given.time_zone,
        agent_id=None if given.agent_id is None else AgentId(given.agent_id),
        message=given.message,
        enabled=given.enabled,
    )
    return ScheduleOut.model_validate(changed)


@router.delete("/{schedule_id}", status_code=204, responses=examples("NOT_FOUND"))
async def delete_schedule(schedule_id: ScheduleId, tenant: PersonTenant, services: Injected) -> None:
    """Delete a schedule. Only for its user and for owners of the workspace. Its sessions stay."""
    await services.schedules.rows.delete(tenant, schedule_id)


@router.post("/{schedule_id}/run", status_code=202, responses=examples("NOT_FOUND", "CONFLICT"))
async def run_schedule(schedule_id: ScheduleId, tenant: PersonTenant, services: Injected) -> RunOut:
    """Send its message now, in a new session. Only for its user. The next time stays as it is."""
    return RunOut.model_validate(await services.schedules.run_now(tenant, schedule_id))
