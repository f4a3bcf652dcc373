"""Agents as models: what they are called, and who is meant by a name.

A name is ``workspace/agent``. Names of workspaces are their owners' to choose, and anyone may be made a member of
another's: a name that two would answer to is nobody's, so that no conversation ever goes to a namesake.
"""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import WorkspaceId
from toolcrib.server.auth import Principal, tenant_for
from toolcrib.server.services import Services
from toolcrib.storage.agents import StoredAgent
from toolcrib.storage.workspaces import Workspace

_PAGE: Final = 200
# How many workspaces of one person are looked through.
_MOST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Offered:
    """An agent of one of a person's workspaces."""

    workspace: Workspace
    agent: StoredAgent

    @property
    def name(self) -> str:
        return f"{self.workspace.name}/{self.agent.name}"

    @property
    def sure_name(self) -> str:
        """One that nobody else can have: by the workspace's id."""
        return f"{self.workspace.id}/{self.agent.name}"


async def listed(services: Services, principal: Principal) -> dict[str, Offered]:
    """All agents that a person can speak to, by what each is called: the sure name where two have the same."""
    found = [
        Offered(workspace, agent)
        async for workspace in _workspaces(services, principal)
        for agent in await services.agents.list(tenant_for(principal, workspace.id))
    ]
    times = Counter(one.name for one in found)
    return {one.name if times[one.name] == 1 else one.sure_name: one for one in found}


async def called(services: Services, principal: Principal, name: str) -> Offered:
    """The agent that is meant; NotFound if there is none, or more than one."""
    fitting = [
        Offered(workspace, agent)
        async for workspace in _workspaces(services, principal)
        if name.startswith((f"{workspace.name}/", f"{workspace.id}/"))
        for agent in await services.agents.list(tenant_for(principal, workspace.id))
    ]
    surely = [one for one in fitting if one.sure_name == name]
    meant = surely or [one for one in fitting if one.name == name]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise _no_model(f"There is no {name!r} that you could speak to. GET /v1/models lists who there is.")
    choice = ", ".join(repr(one.sure_name) for one in meant)
    raise _no_model(f"{len(meant)} agents are called {name!r}. Say which: {choice}.")


async def _workspaces(services: Services, principal: Principal) -> AsyncIterator[Workspace]:
    before: WorkspaceId | None = None
    for _ in range(_MOST // _PAGE):
        page = await services.workspaces.list_own(principal.person, before=before, limit=_PAGE)
        for workspace in page:
            yield workspace
        if len(page) < _PAGE:
            return
        before = page[-1].id


def _no_model(message: str) -> NotFound:
    return NotFound(message, fields={"model": "Not known"})
