"""A session whose agent changed files, and the person who reviews them."""

from dataclasses import dataclass, replace
from typing import Any

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import EVERYTHING, allowed, trusted
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Caller
from toolcrib.core.ids import SessionId
from toolcrib.core.tool_calls import Outcome


@dataclass
class ReviewFixture:
    """A session whose agent is trusted with reviews, and the person who reviews it."""

    workspace: WorkspaceFixture
    agent: Caller
    session_id: SessionId

    async def does(self, tool: str, **arguments: Any) -> str:
        """Make a call of the agent."""
        outcome = await self.workspace.call(tool, self.agent, **arguments)
        assert outcome.succeeded, outcome.error
        return str(outcome.call_id)

    async def shown(self) -> dict[str, Any]:
        return await self.workspace.result("review", session_id=str(self.session_id))

    async def file(self, path: str) -> dict[str, Any]:
        [found] = [one for one in (await self.shown())["files"] if one["path"] == path]
        return dict(found)

    async def decide(self, by: Caller | None = None, **given: Any) -> Outcome:
        person = replace(by or self.workspace.caller, session_id=self.session_id)
        return await self.workspace.call("review_decide", person, **given)

    async def decided(self, **given: Any) -> dict[str, Any]:
        outcome = await self.decide(**given)
        assert outcome.succeeded, (outcome.error, outcome.error and outcome.error.fields)
        return dict(outcome.result)

    async def revert(self, path: str, *hunks: str) -> dict[str, Any]:
        shown = await self.file(path)
        return await self.decided(decisions=[revert_of(shown, *hunks)])

    def text(self, path: str) -> str:
        return (self.workspace.project / path.lstrip("/")).read_text()


def revert_of(shown: dict[str, Any], *hunks: str) -> dict[str, Any]:
    return {"path": shown["path"], "version": shown["version"], "decision": "revert", "hunks": list(hunks)}


def edit_of(shown: dict[str, Any], content: str) -> dict[str, Any]:
    return {"path": shown["path"], "version": shown["version"], "decision": "edit", "content": content}


def keep_of(shown: dict[str, Any]) -> dict[str, Any]:
    return {"path": shown["path"], "version": shown["version"], "decision": "keep"}


async def review_of(workspace: WorkspaceFixture) -> ReviewFixture:
    """Return a new session of a trusted agent, whose changes are reviewed."""
    agent = await trusted(workspace, toolsets=["workspace", "studio"], tool_permissions=EVERYTHING | allowed("bash"))
    assert agent.agent is not None
    created = await workspace.stores.sessions.create(workspace.tenant, agent_id=agent.agent.id, trust=TrustLevel.REVIEW)
    return ReviewFixture(workspace, replace(agent, session_id=created.id), created.id)
