"""A run in memory while a process executes it: messages, progress of the calls, and what decides the next step.

Its loader also refreshes it, because rules and memberships may change.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.core.budgets import BudgetState
from toolcrib.core.callers import Agent, Caller, SessionMode, WorkspaceRole
from toolcrib.core.errors import BadArguments, Forbidden, NotFound, ProtectedPath, SandboxViolation, ToolcribError
from toolcrib.core.ids import CallId, UserId
from toolcrib.core.messages import StoredMessage, ToolCallId, from_stored
from toolcrib.core.model_stream import TokenUsage
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import (
    AGENTIC_SECONDS,
    CHAT_SECONDS,
    ModelUsage,
    RequestedCall,
    RequestedCallState,
    Run,
    SessionMessage,
    Violations,
)
from toolcrib.core.tool_calls import Outcome
from toolcrib.gate.session_agents import SessionAgents
from toolcrib.policy.model_results import CallProgress
from toolcrib.policy.permissions import TOOL_SEARCH
from toolcrib.providers.model_catalog import is_known, price
from toolcrib.providers.provider import ModelInfo
from toolcrib.providers.provider_registry import ProviderRegistry, provider_class
from toolcrib.runs.next_step import RunSnapshot
from toolcrib.runs.prompt_context import PromptContext
from toolcrib.runs.read_attachments import ReadAttachments
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.provider_credentials import ProviderCredentialStore
from toolcrib.storage.run_steps import RunAuthorization, RunStepStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry
from toolcrib.tools.tool_search import MOST_SHOWN, found_tools

# Estimated characters per token, for text that the provider has not counted yet.
_CHARACTERS_PER_TOKEN = 4
# Messages that stay when the history is compacted, and the fewest that a summary replaces.
_KEPT = 6
_WORTHWHILE = 2
# How long a provider's answer about a model is cached, and how long the absence of one is.
_KNOWN_SECONDS, _UNKNOWN_SECONDS = 3_600.0, 60.0


@dataclass
class LoadedRun:
    """A run that this process has claimed. Until the claim ends, only this process writes it, under its epoch."""

    run: Run
    agent: Agent
    mode: SessionMode
    messages: list[SessionMessage]
    calls: dict[CallId, CallProgress]
    violations: Violations
    # Differs from the database's version if the agent, its grants or the session have changed since.
    rules_version: str = ""
    window: int | None = None
    tools: tuple[Tool, ...] = ()
    # The tool that reads the rest of a result; offered once a result was shortened.
    reads_on: Tool | None = None
    # The tool that finds others; set if there are too many to be offered at once.
    searches: Tool | None = None
    read_attachments: ReadAttachments = field(default_factory=ReadAttachments)
    # Characters added since the provider last counted tokens.
    uncounted_characters: int = 0
    # Loaded just now; nothing was executed since.
    is_fresh: bool = True
    # The model has answered in this process, and its calls were not executed yet.
    has_turned: bool = False
    # How often an answer that broke off was asked for again, since the last whole one.
    repeats: int = 0
    # Another process had this run, and may have been killed while it streamed.
    may_have_open_stream: bool = False
    # What the model is told of the workspace; None until it is called. The folders whose instructions were looked for.
    context: PromptContext | None = None
    instructed_folders: set[WorkspacePath] = field(default_factory=set)
    claimed_at: float = field(default_factory=time.monotonic)
    # Why the model may not be called again: a budget is used up, as of the last look at it.
    budget_error: str | None = None

    @property
    def caller(self) -> Caller:
        """The caller of this run's tool calls."""
        run = self.run
        return Caller(
            workspace_id=run.workspace_id,
            user_id=run.user_id,
            agent=self.agent,
            session_id=run.session_id,
            run_id=run.id,
            run_epoch=run.epoch,
            via=run.via,
            mode=self.mode,
        )

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is offered now. What becomes available later follows at the end."""
        if self.searches is not None:
            return (*self.listed, *self._found())
        if self.reads_on is None or not any(
            call_id in self.calls and self.calls[call_id].is_cut for one in self.messages for call_id in one.call_ids
        ):
            return self.tools
        return (*self.tools, self.reads_on)

    @property
    def listed(self) -> tuple[Tool, ...]:
        """The tools that the prompt names: all that are offered or, if there are too many, the built-in ones."""
        if self.searches is None:
            return self.offered
        built_in = (tool for tool in self.tools if tool.is_built_in)
        return (*built_in, self.searches, *((self.reads_on,) if self.reads_on else ()))

    @property
    def unlisted(self) -> dict[str, int]:
        """How many tools of which toolsets the model must find; empty unless there are too many."""
        others = (tool.toolset for tool in self.tools if self.searches is not None and not tool.is_built_in)
        return dict(sorted(Counter(others).items()))

    def _found(self) -> Iterator[Tool]:
        """Yield the other tools that the conversation has found or called, in that order."""
        ended = (self.calls[call_id] for one in self.messages for call_id in one.call_ids if call_id in self.calls)
        named = (
            name for call in ended for name in ([call.tool] if call.tool != TOOL_SEARCH else found_tools(call.result))
        )
        others = {tool.name: tool for tool in self.tools if not tool.is_built_in}
        for name in dict.fromkeys(named):
            if name in others:
                yield others[name]

    @property
    def last(self) -> SessionMessage | None:
        """The last message, if there is one."""
        return self.messages[-1] if self.messages else None

    @property
    def planned(self) -> tuple[RequestedCall, ...]:
        """The calls that the model's last message requests."""
        return planned_calls(self.messages, self.calls)

    @property
    def calls_that_worked(self) -> tuple[str, ...]:
        """The names of the calls that the model's last message requested, if all of them ended without an error."""
        if self.last is None or self.last.run_id != self.run.id:
            return ()
        progress = [self.calls.get(call.id) for call in self.planned]
        if any(one is None or one.state is not RequestedCallState.ENDED or one.error is not None for one in progress):
            return ()
        return tuple(call.name for call in self.planned)

    def snapshot(self) -> RunSnapshot:
        """Return what ``next_step`` needs to decide."""
        rules, last = self.agent.rules, self.last
        answered = last is not None and last.role == "assistant" and not last.call_ids
        allowed_seconds = rules.run_timeout or (AGENTIC_SECONDS if self.tools else CHAT_SECONDS)
        return RunSnapshot(
            cancelled=self.run.cancelled_by is not None,
            violations=self.violations.counted,
            max_violations=rules.max_sandbox_violations,
            overdue=self.run.active_ms / 1000 + time.monotonic() - self.claimed_at > allowed_seconds,
            turns=self.run.turns + self.run.child_turns,
            max_turns=rules.max_turns,
            answered=answered,
            concluded=answered and last is not None and bool((last.metadata or {}).get("concluded")),
            calls=self.planned,
            context=self.tokens / self.window if self.window else None,
            compactable=compactable(self.messages) is not None and not self._has_compacted,
            over_budget=self.budget_error is not None,
            compacts=self.run.compacts,
            reserve=rules.budget_reserve,
        )

    @property
    def _has_compacted(self) -> bool:
        """Whether the run was to compact the conversation and has done so: the last question and its answer stay."""
        first = self.messages[0] if self.messages else None
        return self.run.compacts and first is not None and first.role == "summary" and first.run_id == self.run.id

    @property
    def tokens(self) -> int:
        """The size of the conversation in tokens: the provider's count plus an estimate of what was added since."""
        return self.run.context_tokens + self.uncounted_characters // _CHARACTERS_PER_TOKEN

    def estimate(self) -> None:
        """Estimate what was added since the provider last counted; everything if it never did."""
        uncounted = self.messages if self.run.context_tokens == 0 else self.messages[-1:]
        self.uncounted_characters = sum(self._length(one, with_words=self.run.context_tokens == 0) for one in uncounted)

    def compacted(self, summary: SessionMessage, up_to: int) -> int:
        """Replace the messages up to a position by a summary. Returns the new size in tokens."""
        self.messages = [summary, *(one for one in self.messages if one.position > up_to and one.role != "summary")]
        self.uncounted_characters = 0
        tokens = sum(self._length(one) for one in self.messages) // _CHARACTERS_PER_TOKEN
        self.run = replace(self.run, context_tokens=tokens)
        return tokens

    def _length(self, one: SessionMessage, *, with_words: bool = True) -> int:
        results = sum(len(self.calls[call_id].result_text[0]) for call_id in one.call_ids if call_id in self.calls)
        arguments = sum(len(call["function"]["arguments"]) for _, call in one.requested)
        return results + (len(one.content) + arguments if with_words else 0)

    def add_turn(self, messages: SessionMessage, *, context_tokens: int, counted: bool, used: ModelUsage) -> None:
        """Add the model's answer."""
        self.messages.append(messages)
        self.has_turned = True
        self.repeats = 0
        self.uncounted_characters = 0 if counted else self.uncounted_characters + len(messages.content)
        context = context_tokens if counted else self.run.context_tokens
        self.run = replace(
            self.run,
            turns=self.run.turns + 1,
            context_tokens=context,
            provider_waits=0,
        )
        self.add_usage(used)

    def add_usage(self, used: ModelUsage) -> None:
        """Add what a request to the model has used, for an answer or a summary."""
        self.run = replace(
            self.run,
            input_tokens=self.run.input_tokens + used.input_tokens,
            output_tokens=self.run.output_tokens + used.output_tokens,
            cost=self.run.cost + (used.cost or 0),
            unpriced_turns=self.run.unpriced_turns + used.unpriced,
        )

    def record_outcome(self, call: RequestedCall, outcome: Outcome) -> None:
        """Record that a call has ended or waits for a person."""
        state = RequestedCallState.WAITING if outcome.is_waiting else RequestedCallState.ENDED
        error = outcome.error
        error_data = None if error is None else {"code": error.code, "message": error.message, "fields": error.fields}
        self.is_fresh = False
        view = self.calls[call.id] = CallProgress(
            call.id, call.name, state, outcome.result, error_data, was_truncated=bool(outcome.metadata.get("truncated"))
        )
        if isinstance(error, ProtectedPath):
            self.violations = replace(self.violations, protected=self.violations.protected + 1)
        elif isinstance(error, SandboxViolation):
            self.violations = replace(self.violations, escapes=self.violations.escapes + 1)
        if state is RequestedCallState.ENDED:
            self.uncounted_characters += len(view.result_text[0])


def model_of(agent: Agent) -> tuple[str, str]:
    """Return the agent's provider and model.

    Raises:
        BadArguments: It has none.
    """
    if not agent.rules.provider or not agent.rules.model:
        raise BadArguments(
            {"agent": f"Agent {agent.name!r} has no `provider` and `model`. Add them to its definition."}
        )
    return agent.rules.provider, agent.rules.model


def usage_of(loaded: LoadedRun, counted: TokenUsage) -> ModelUsage:
    """Return what a request to the run's model has used, at the prices of now."""
    rules = loaded.agent.rules
    assert rules.provider and rules.model, "it was called"
    found = price(rules.provider, rules.model, counted)
    cost = found.total if found else None
    return ModelUsage(rules.provider, rules.model, counted.input_tokens, counted.output_tokens, cost)


def budget_error(loaded: LoadedRun, budgets: Sequence[BudgetState]) -> str | None:
    """Return why the run may not call its model, given the budgets that it is subject to; None if it may."""
    rules = loaded.agent.rules
    for budget in budgets:
        if error := budget.used_up:
            return error
    limited = [budget for budget in budgets if budget.max_cost is not None]
    if not limited or not rules.provider or not rules.model or is_known(rules.provider, rules.model):
        return None
    return limited[0].unpriced(rules.model)


def planned_calls(
    messages: Sequence[SessionMessage], calls: Mapping[CallId, CallProgress]
) -> tuple[RequestedCall, ...]:
    """Return the calls of the last message with their states, if that message is the model's."""
    if not messages or messages[-1].role != "assistant":
        return ()
    return tuple(
        RequestedCall(
            call_id,
            ToolCallId(call["id"]),
            call["function"]["name"],
            call["function"]["arguments"],
            calls[call_id].state if call_id in calls else RequestedCallState.NEW,
            calls[call_id].idempotent if call_id in calls else True,
        )
        for call_id, call in messages[-1].requested
    )


def compactable(messages: Sequence[SessionMessage]) -> int | None:
    """Return the position up to which a summary may replace the messages, or None if there are too few.

    The current question and everything after it stays. A message's calls stay with their results.
    """
    asked = max((number for number, one in enumerate(messages) if one.role == "user"), default=0)
    # Within a long answer, older turns may be replaced too, except for the last few.
    for cut in (asked, len(messages) - _KEPT):
        if sum(one.role != "summary" for one in messages[: max(cut, 0)]) >= _WORTHWHILE:
            return messages[cut - 1].position
    return None


def as_message(one: SessionMessage) -> Any:
    """Convert a stored message for providers. A summary becomes a user message.

    A person's message also says what reviews decided since the last one.
    """
    if one.role == "summary":
        return from_stored(StoredMessage("user", f"Summary of the conversation so far:\n{one.content}"))
    if one.role == "user" and (reviewed := (one.metadata or {}).get("review")):
        return from_stored(StoredMessage("user", f"[{reviewed}]\n\n{one.content}"))
    return from_stored(StoredMessage(one.role, one.content, dict(one.metadata) if one.metadata else None))


class CredentialResolver:
    """Finds provider credentials: those of the person who sent the message."""

    def __init__(self, rows: ProviderCredentialStore) -> None:
        self._rows = rows

    async def of(self, user_id: UserId, provider: str) -> ProviderCredentials:
        """Return the credentials to use.

        Raises:
            NotFound: There are none; the message says what to do.
        """
        stored = await self._rows.of(user_id, provider)
        if stored is not None:
            return stored
        if not provider_class(provider).needs_credentials:
            return ProviderCredentials(limits=self._rows.limits)
        raise NotFound(
            f"You have no credentials for {provider!r}. Store them in the settings, with `toolcrib models login "
            f"{provider}` or with PUT /api/v1/credentials/{provider}, then send the message again."
        )


class RunLoader:
    """Loads runs. Caches only what providers say about their models."""

    def __init__(
        self,
        runs: RunStepStore,
        sessions: SessionStore,
        agents: AgentStore,
        access: CredentialResolver,
        providers: ProviderRegistry,
        registry: ToolRegistry,
        session_agents: SessionAgents,
    ) -> None:
        self._runs = runs
        self._session_agents = session_agents
        self._sessions = sessions
        self._agents = agents
        self._access = access
        self._providers = providers
        self._registry = registry
        # What a provider says about a model, and until when that is believed.
        self._known: dict[tuple[str, str | None, str], tuple[ModelInfo | None, float]] = {}

    async def load(self, run: Run) -> LoadedRun:
        """Load the run.

        Raises:
            Forbidden: Its user is not a member any more.
            NotFound: Its session or agent was deleted.
        """
        terms = await self._runs.authorization(run)
        agent, mode = await self._load_rules(run, terms)
        messages = await self._runs.messages_for_model(run)
        calls = await self._runs.calls(run.workspace_id, [call_id for one in messages for call_id in one.call_ids])
        # A run that has not started has called nothing.
        violations = await self._runs.violations(run) if run.turns else Violations()
        loaded = LoadedRun(
            run,
            agent,
            mode,
            messages,
            calls,
            violations,
            rules_version=terms.stamp,
            may_have_open_stream=run.epoch > 1,
        )
        await self._load_tools(loaded)
        loaded.estimate()
        return loaded

    async def refresh_rules(self, loaded: LoadedRun) -> None:
        """Reload the rules and check the membership before the model is called again, and before each call."""
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
        agent, mode = await self._session_agents.in_session(run.workspace_id, agent, session, run.user_id)
        chosen: dict[str, Any] = {}
        if session.provider is not None and session.model is not None:
            chosen = {"provider": session.provider, "model": session.model}
        if run.max_turns is not None and run.max_active_ms is not None:
            seconds = agent.rules.run_timeout or AGENTIC_SECONDS
            chosen["max_turns"] = min(agent.rules.max_turns, run.max_turns)
            chosen["run_timeout"] = min(seconds, run.max_active_ms / 1000)
        return replace(agent, rules=agent.rules.model_copy(update=chosen)), mode

    async def _load_tools(self, loaded: LoadedRun) -> None:
        """Load the tools that the agent may use in this mode with this model, and the model's context window."""
        model = await self._model(loaded)
        loaded.window = loaded.agent.rules.context_window or (model.context_window if model else None)
        usable = model is None or model.supports_tools
        rules = loaded.agent.rules
        registry = await self._registry.for_person(loaded.run.workspace_id, loaded.run.user_id, rules)
        tools = registry.list_for_scope(rules) if usable else []
        loaded.tools = tuple(tool for tool in tools if loaded.mode in tool.modes)
        loaded.reads_on = registry.read_result(rules) if loaded.tools else None
        is_crowded = len(loaded.tools) > MOST_SHOWN and not all(tool.is_built_in for tool in loaded.tools)
        loaded.searches = registry.tool_search(rules) if is_crowded else None

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
        info, until = self._known.get(key, (None, now))
        if until > now:
            return info
        try:
            models = await self._providers.models(rules.provider, credentials)
        except ToolcribError:
            models = []
        info = next((model for model in models if model.id == rules.model), None)
        self._known[key] = (info, now + (_KNOWN_SECONDS if info else _UNKNOWN_SECONDS))
        return info


def _may_go_on(terms: RunAuthorization) -> bool:
    return terms.role is not None and terms.role.covers(WorkspaceRole.MEMBER)
