"""Finds the agent of a workspace: creates a default one for a new directory, or uses the one that was chosen.

Its model comes from the environment, from stored credentials, or is a good default of the provider.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolcrib.client import AgentOut, Client, ModelOut
from toolcrib.core.errors import Misconfigured, NotFound, ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation

if TYPE_CHECKING:
    from toolcrib.core.provider_credentials import ProviderCredentials
    from toolcrib.providers.provider import Provider

DEFAULT_NAME = "assistant"
PROGRAMS_NAME = "python"
_PERMISSIONS = {"bash": "{allowed: true, approve: effect}"}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A provider's model."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def definition(choice: ModelChoice, *, tools: Sequence[str] = (), prompt: str = "") -> str:
    """Return the definition of the default agent: its tools and ``tools``.

    Changes that can be undone are applied, and a person approves what cannot. Of a command, a person approves the
    effect, once it has run in the sandbox.
    """
    permissions = {**dict.fromkeys((*_default_tools(), *tools), "{allowed: true}"), **_PERMISSIONS}
    allowed = "\n".join(f"  {tool}: {permission}" for tool, permission in permissions.items())
    model = choice.model.replace("'", "''")
    own = f"prompt: {json.dumps(prompt)}\n" if prompt else ""
    return (
        f"provider: {choice.provider}\nmodel: '{model}'\ntrust: review\ntoolsets: [workspace]\n"
        f"{own}max_sandbox_violations: 3\ntool_permissions:\n{allowed}\n"
    )


def _default_tools() -> list[str]:
    # Here, because a program that chooses its agent by name needs no tools.
    import toolcrib.tools
    from toolcrib.tools.tool_registry import discover_tools

    return [tool.name for tool in discover_tools(toolcrib.tools) if tool.default]


def resolve_agent(location: WorkspaceLocation, name: str | None) -> AgentOut:
    """Return the agent of this name, or the default one. A directory gets its default agent at the first use.

    Raises:
        NotFound: There is no agent of this name.
        Misconfigured: The workspace is on a server with several agents, and none was named.
    """
    agents = location.client.agents(location.id)
    wanted = name or _default(location)
    for agent in agents:
        if wanted in (agent.name, str(agent.id)):
            return agent
    known = ", ".join(agent.name for agent in agents) or "none"
    if name is not None:
        raise NotFound(f"There is no agent {name!r}. Agents: {known}. `toolcrib agents add` adds one.")
    if location.notes is None and len(agents) == 1:
        return agents[0]
    if location.notes is None:
        raise Misconfigured(f"Choose an agent with --agent NAME. Agents: {known}.")
    return location.client.create_agent(location.id, name=wanted, definition=definition(first_choice(location.client)))


def defined_agent(location: WorkspaceLocation, *, model: str | None, tools: Sequence[str], prompt: str) -> AgentOut:
    """Return the agent of Python programs in a directory; created or changed to match the arguments."""
    choice = parse_choice(model) if model else first_choice(location.client)
    wanted = definition(choice, tools=tools, prompt=prompt)
    for agent in location.client.agents(location.id):
        if agent.name == PROGRAMS_NAME:
            same = agent.definition == wanted
            return agent if same else location.client.change_agent(location.id, agent.id, definition=wanted)
    return location.client.create_agent(location.id, name=PROGRAMS_NAME, definition=wanted)


def make_default(location: WorkspaceLocation, name: str) -> None:
    """Make this agent the default of the directory."""
    if location.notes is None:
        raise Misconfigured("Only a local directory has a default agent. With a server, use --agent NAME.")
    note = location.notes / "default-agent"
    note.touch(mode=0o600)
    note.write_text(name)


def default_name(location: WorkspaceLocation) -> str | None:
    """Return the name of the directory's default agent; None for a workspace on a server."""
    return None if location.notes is None else _default(location)


def set_model(location: WorkspaceLocation, agent: AgentOut, choice: ModelChoice) -> AgentOut:
    """Change the model of an agent. The rest of its definition stays as written."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    message = yaml.load(agent.definition) or {}
    message["provider"], message["model"] = choice.provider, choice.model
    text = StringIO()
    yaml.dump(message, text)
    return location.client.change_agent(location.id, agent.id, definition=text.getvalue())


def _default(location: WorkspaceLocation) -> str:
    noted = location.notes / "default-agent" if location.notes else None
    return noted.read_text().strip() if noted and noted.exists() else DEFAULT_NAME


def parse_choice(text: str) -> ModelChoice:
    """Parse ``provider/model``. A model's name may contain slashes.

    Raises:
        Misconfigured: The text has another format.
    """
    provider, slash, model = text.partition("/")
    if not slash or not provider or not model:
        raise Misconfigured(f"{text!r} is not PROVIDER/MODEL, such as ollama/qwen3. `toolcrib models` lists yours.")
    return ModelChoice(provider, model)


def named_by_environment() -> "dict[str, ProviderCredentials]":
    """Return the providers that the environment configures, preferred ones first, with their credentials."""
    # Here, because most commands do not need the providers.
    from toolcrib.providers.provider_registry import credentials_in

    return credentials_in(os.environ)


def no_model() -> str:
    """Return what to do if no model is configured."""
    first, *others = dict.fromkeys(one.variable for one in _provider_classes().values() if one.variable)
    return (
        "No model is configured. Do one of these:\n"
        f"  export {first}=…   (or {', '.join(others)})\n"
        "  toolcrib models login anthropic   stores a key, encrypted, for all directories"
    )


def is_keyless(provider: str) -> bool:
    """Return whether a provider is known to need no key."""
    known = _provider_classes().get(provider)
    return known is not None and not known.needs_credentials


def _provider_classes() -> "Mapping[str, type[Provider]]":
    # Here, because most commands do not need the providers.
    from toolcrib.providers.provider_registry import provider_classes

    return provider_classes()


def usable(client: Client) -> list[str]:
    """Return the providers with credentials, those of the environment first."""
    stored = (one.provider for one in client.provider_credentials())
    return list(dict.fromkeys([*named_by_environment(), *stored]))


def first_choice(client: Client) -> ModelChoice:
    """Return the model of ``TOOLCRIB_MODEL``, otherwise a good model of the first provider that answers.

    Raises:
        Misconfigured: No provider answers.
    """
    if text := os.environ.get("TOOLCRIB_MODEL"):
        return parse_choice(text)
    failures = []
    for provider in usable(client):
        try:
            models = client.models(provider)
        except ToolcribError as error:
            failures.append(f"{provider}: {error.message}")
            continue
        if model := preferred(models):
            return ModelChoice(provider, model.id)
        failures.append(f"{provider}: no model supports tools.")
    if failures:
        raise Misconfigured("No model is available.\n  " + "\n  ".join(failures))
    raise Misconfigured(no_model())


def preferred(models: Sequence[ModelOut]) -> ModelOut | None:
    """Return the newest mid-range model, judged by its name: good with tools, and not the most expensive."""
    with_tools = [model for model in models if model.supports_tools]
    if not with_tools:
        return None
    for pattern in (r"sonnet", r"^gpt-\d+(\.\d+)?$", r"^gpt-\d", r"coder", r"^(qwen|llama|mistral|devstral)"):
        fitting = [model for model in with_tools if re.search(pattern, model.id)]
        if fitting:
            return max(fitting, key=_version)
    return with_tools[0]


def _version(model: ModelOut) -> tuple[tuple[int, ...], str]:
    # A long number is a date, not a version.
    numbers = tuple(int(number) for number in re.findall(r"\d+", model.id) if len(number) < 5)
    return numbers, model.id
