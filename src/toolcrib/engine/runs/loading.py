"""Tells a run's story from its rows, and keeps it true while it is carried on: rules may change, and people may go."""

import time
from dataclasses import dataclass, replace

from toolcrib.domain.callers import Agent, Role
from toolcrib.domain.errors import Forbidden, NotFound, ToolcribError
from toolcrib.domain.runs import Run
from toolcrib.domain.sessions import Mode
from toolcrib.engine.runs.access import ModelAccess
from toolcrib.engine.runs.call_view import CallView
from toolcrib.engine.runs.story import Story
from toolcrib.policy.modes import offered_in
from toolcrib.providers.provider import ModelInfo
from toolcrib.providers.registry import Providers
from toolcrib.storage.agents import Agents
from toolcrib.storage.database import Tenant
from toolcrib.storage.run_steps import Terms
from toolcrib.storage.runs import Runs
from toolcrib.storage.sessions import Sessions
from toolcrib.tools.registry import Registry

# How long what a provider told of a model is believed, and how long that it told nothing.
_KNOWN_SECONDS, _UNKNOWN_SECONDS = 3_600.0, 60.0


@dataclass(frozen=True, slots=True)
class _Known:
    info: ModelInfo | None
    until: float


class Stories:
    """Loads stories. Remembers nothing of any run, only what providers tell of their models."""

    def __init__(
        self,
        runs: Runs,
        sessions: Sessions,
        agents: Agents,
        access: ModelAccess,
        providers: Providers,
        registry: Registry,
    ) -> None:
        self._runs = runs
        self._sessions = sessions
        self._agents = agents
        self._access = access
        self._providers = providers
        self._registry = registry
        self._known: dict[tuple[str, str | None, str], _Known] = {}

    async def load(self, run: Run) -> Story:
        """The story so far; Forbidden or NotFound if nobody is left for whom, or by whom, it could go on."""
        terms = await self._runs.terms(run)
        agent, mode = await self._bound_by(run, terms)
        said = await self._runs.conversation(run)
        rows = await self._runs.calls(run, [call_id for one in said for call_id in one.call_ids])
        calls = {call_id: CallView.of(row) for call_id, row in rows.items()}
        # One that has not begun has called nothing.
        violations = await self._runs.violations(run) if run.turns else 0
        story = Story(run, agent, mode, said, calls, violations, stamp=terms.stamp)
        await self._offer(story)
        story.estimate()
        return story

    async def renew(self, story: Story) -> None:
        """Before the model is asked again: the rules are those of now, and so is whoever it is for."""
        if story.is_fresh:
            story.is_fresh = False
            return
        terms = await self._runs.terms(story.run)
        if _may_go_on(terms) and terms.stamp == story.stamp:
            return
        story.agent, story.mode = await self._bound_by(story.run, terms)
        story.stamp = terms.stamp
        await self._offer(story)

    async def _bound_by(self, run: Run, terms: Terms) -> tuple[Agent, Mode]:
        if not _may_go_on(terms):
            raise Forbidden("Whoever sent the message is no member of this workspace any more.")
        if run.agent_id is None:
            raise NotFound("This session has no agent, so there is no model to answer. Give it one.")
        tenant = Tenant(run.workspace_id)
        agent = (await self._agents.get(tenant, run.agent_id)).as_caller
        session = await self._sessions.get(tenant, run.session_id)
        if session.trust is not None:
            agent = replace(agent, rules=agent.rules.model_copy(update={"trust": session.trust}))
        return agent, session.mode

    async def _offer(self, story: Story) -> None:
        """The tools that the agent may use, in this mode, by this model; and how much the model can be told."""
        model = await self._model(story)
        story.window = story.agent.rules.context_window or (model.context_window if model else None)
        usable = model is None or model.supports_tools
        registry = await self._registry.within(story.run.workspace_id)
        tools = registry.list_for_scope(story.agent.rules) if usable else []
        story.tools = tuple(tool.definition() for tool in tools if offered_in(story.mode, tool))

    async def _model(self, story: Story) -> ModelInfo | None:
        """What the provider tells of the model; None if it does not. A provider that fails will be asked soon again."""
        rules, now = story.agent.rules, time.monotonic()
        if not rules.provider or not rules.model or rules.context_window:
            return None
        try:
            credentials = await self._access.of(story.run.user_id, rules.provider)
        except NotFound:
            # Asking the model will say what is to be done about it.
            return None
        key = (rules.provider, credentials.base_url, rules.model)
        if key in self._known and self._known[key].until > now:
            return self._known[key].info
        try:
            models = await self._providers.models(rules.provider, credentials)
        except ToolcribError:
            models = []
        info = next((model for model in models if model.id == rules.model), None)
        self._known[key] = _Known(info, now + (_KNOWN_SECONDS if info else _UNKNOWN_SECONDS))
        return info


def _may_go_on(terms: Terms) -> bool:
    return terms.role is not None and terms.role.covers(Role.MEMBER)
