"""The inbox: what waits for a person in all their workspaces."""

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import Present
from toolcrib.api.routers import api_router
from toolcrib.schemas.inbox import InboxOut

router = api_router("/inbox", tag="inbox")


@router.get("")
async def get_inbox(principal: Present, services: Injected) -> InboxOut:
    """Return what waits for you: pending calls per workspace, open reviews, and runs of yours that failed."""
    return InboxOut.model_validate(await services.inbox.load(principal.user_id))
