"""Finds the agent of a workspace: creates a default one for a new directory, or uses the one that was chosen."""

import json
from collections.abc import Sequence

from toolcrib.client import AgentData
from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.sdk.default_model import ModelChoice, first_choice, parse_choice, store_environment_keys
from toolcrib.sdk.workspace_location import WorkspaceLocation

DEFAULT_NAME = "assistant"
PROGRAMS_NAME = "python"
_TOOLS = (
    *("ls", "read", "cat", "file_info", "read_multiple_files", "grep", "glob", "find"),
    *("write", "edit", "rm", "mv", "touch", "mkdir", "bash", "web_search"),
    *("ask_user", "plan_write", "plan_read", "plan_edit", "plan_list", "exit_plan_mode"),
)


def definition(choice: ModelChoice, *, tools: Sequence[str] = (), prompt: str = "") -> str:
    """Return the definition of the default agent: all tools, and a person approves every change."""
    allowed = "\n".join(f"  {tool}: {{allowed: true}}" for tool in (*_TOOLS, *tools))
    own = f"prompt: {json.dumps(prompt)}\n" if prompt else ""
    return (
        f"provider: {choice.provider}\nmodel: {_quoted(choice.model)}\ntrust: guided\ntoolsets: [workspace]\n"
        f"{own}max_sandbox_violations: 3\ntool_permissions:\n{allowed}\n"
    )


def resolve_agent(location: WorkspaceLocation, name: str | None) -> AgentData:
    """Return the agent of this name, or the default one. A directory gets its default agent at the first use.

    Raises:
        NotFound: There is no agent of this name.
        Misconfigured: The workspace is on a server with several agents, and none was named.
    """
    if location.notes is not None:
        store_environment_keys(location.client)
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


def defined_agent(location: WorkspaceLocation, *, model: str | None, tools: Sequence[str], prompt: str) -> AgentData:
    """Return the agent of Python programs in a directory; created or changed to match the arguments."""
    store_environment_keys(location.client)
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


def set_model(location: WorkspaceLocation, agent: AgentData, choice: ModelChoice) -> AgentData:
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


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
