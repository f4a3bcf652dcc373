"""Loads a run from its rows and refreshes it while it is executed, because rules and memberships may change."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from toolcrib.core.callers import Agent, SessionMode, WorkspaceRole
from toolcrib.core.errors import Forbidden, NotFound, ToolcribError
from toolcrib.core.ids import UserId
from toolcrib.core.runs import Run, Violations
from toolcrib.policy.authorization import is_offered_in_mode
from toolcrib.policy.phases import in_phase
from toolcrib.policy.trust import in_session
from toolcrib.providers.provider import ModelInfo, ProviderCredentials
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.loaded_run import CallProgress, LoadedRun
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.provider_credentials import ProviderCredentialStore
from toolcrib.storage.run_steps import RunAuthorization
from toolcrib.storage.runs import RunStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.tools.tool_registry import ToolRegistry

# Local servers need no credentials.
_WITHOUT = frozenset({"ollama"})


class CredentialResolver:
    """Finds provider credentials: those of the person who sent the message, otherwise the operator's."""

    def __init__(
        self, rows: ProviderCredentialStore, *, shared: Mapping[str, ProviderCredentials] | None = None
    ) -> None:
        self._rows = rows
        self._shared = dict(shared or {})

    async def of(self, user_id: UserId, provider: str) -> ProviderCredentials:
        """Return the credentials to use.

        Raises:
            NotFound: There are none; the message says what to do.
        """
        stored = await self._rows.of(user_id, provider)
        if stored is not None:
            return ProviderCredentials(stored.secret, stored.base_url, stored.headers)
        if provider in self._shared:
            return self._shared[provider]
        if provider in _WITHOUT:
            return ProviderCredentials()
        raise NotFound(
            f"You have no credentials for {provider!r}. "
            f"Store them with PUT /api/v1/credentials/{provider}, then send the message again."
        )


# How long a provider's answer about a model is cached, and how long the absence of one is.
_KNOWN_SECONDS, _UNKNOWN_SECONDS = 3_600.0, 60.0


@dataclass(frozen=True, slots=True)
class _CachedModelInfo:
    info: ModelInfo | None
    until: float


class RunLoader:
    """Loads runs. Caches only what providers say about their models."""

    def __init__(
        self,
        runs: RunStore,
        sessions: SessionStore,
        agents: AgentStore,
        access: CredentialResolver,
        providers: ProviderRegistry,
        registry: ToolRegistry,
    ) -> None:
        self._runs = runs
        self._sessions = sessions
        self._agents = agents
        self._access = access
        self._providers = providers
        self._registry = registry
        self._known: dict[tuple[str, str | None, str], _CachedModelInfo] = {}

    async def load(self, run: Run) -> LoadedRun:
        """Load the run.

        Raises:
            Forbidden: Its user is not a member any more.
            NotFound: Its session or agent was deleted.
        """
        terms = await self._runs.authorization(run)
        agent, mode = await self._load_rules(run, terms)
        messages = await self._runs.messages_for_model(run)
        rows = await self._runs.calls(run, [call_id for one in messages for call_id in one.call_ids])
        calls = {call_id: CallProgress.of(row) for call_id, row in rows.items()}
        # A run that has not started has called nothing.
        violations = await self._runs.violations(run) if run.turns else Violations()
        loaded = LoadedRun(run, agent, mode, messages, calls, violations, rules_version=terms.stamp)
        await self._load_tools(loaded)
        loaded.estimate()
        return loaded

    async def refresh_rules(self, loaded: LoadedRun) -> None:
        """Reload the rules and check the membership before the model is called again."""
        if loaded.is_fresh:
            loaded.is_fresh = False
            return
        terms = await self._runs.authorization(loaded.run)
        if _may_go_on(terms) and terms.stamp == loaded.rules_version:
            return
        loaded.agent, loaded.mode = await self._load_rules(loaded.run, terms)
        loaded.rules_version = terms.stamp
        await self._load_tools(loaded)

    async def _load_rules(self, run: Run, terms: RunAuthorization) -> tuple[Agent, SessionMode]:
        if not _may_go_on(terms):
            raise Forbidden("The sender of the message is no longer a member of this workspace.")
        if run.agent_id is None:
            raise NotFound("This session has no agent. Set one.")
        tenant = Tenant(run.workspace_id)
        agent = (await self._agents.get(tenant, run.agent_id)).as_caller
        session = await self._sessions.get(tenant, run.session_id)
        agent = in_session(in_phase(agent, session.phase), session.trust, by_owner=session.trust_by_owner)
        if session.provider is not None and session.model is not None:
            chosen = {"provider": session.provider, "model": session.model}
            agent = replace(agent, rules=agent.rules.model_copy(update=chosen))
        return agent, session.mode

    async def _load_tools(self, loaded: LoadedRun) -> None:
        """Load the tools that the agent may use in this mode with this model, and the model's context window."""
        model = await self._model(loaded)
        loaded.window = loaded.agent.rules.context_window or (model.context_window if model else None)
        usable = model is None or model.supports_tools
        registry = await self._registry.for_person(loaded.run.workspace_id, loaded.run.user_id)
        tools = registry.list_for_scope(loaded.agent.rules) if usable else []
        loaded.tools = tuple(tool.definition() for tool in tools if is_offered_in_mode(loaded.mode, tool))
        reads_on = registry.read_result(loaded.agent.rules) if loaded.tools else None
        loaded.reads_on = reads_on.definition() if reads_on else None

    async def _model(self, loaded: LoadedRun) -> ModelInfo | None:
        """Return what the provider says about the model, or None. A provider that failed is asked again soon."""
        rules, now = loaded.agent.rules, time.monotonic()
        if not rules.provider or not rules.model or rules.context_window:
            return None
        try:
            credentials = await self._access.of(loaded.run.user_id, rules.provider)
        except NotFound:
            # Calling the model will produce the error that says what to do.
            return None
        key = (rules.provider, credentials.base_url, rules.model)
        if key in self._known and self._known[key].until > now:
            return self._known[key].info
        try:
            models = await self._providers.models(rules.provider, credentials)
        except ToolcribError:
            models = []
        info = next((model for model in models if model.id == rules.model), None)
        self._known[key] = _CachedModelInfo(info, now + (_KNOWN_SECONDS if info else _UNKNOWN_SECONDS))
        return info


def _may_go_on(terms: RunAuthorization) -> bool:
    return terms.role is not None and terms.role.covers(WorkspaceRole.MEMBER)
