"""Creates an agent with the scripted fake model, and a session with it."""

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import KEY, ModelServer

AGENT = """
provider: openai-compatible
model: gpt-fake
trust: {trust}
toolsets: [workspace, studio, history, agents]
context_window: 100000
tool_permissions:
  read: {{allowed: true}}
  grep: {{allowed: true}}
  ls: {{allowed: true}}
  write: {{allowed: true}}
  edit: {{allowed: true}}
  ask_user: {{allowed: true}}
  bash: {{allowed: true}}
  run_agent: {{allowed: true}}
  plan_write: {{allowed: true}}
  exit_plan_mode: {{allowed: true}}
"""


def hire(workspace: Workspace, model: ModelServer, *, name: str = "coder", trust: str = "guided") -> str:
    """Create an agent that uses Ada's provider key. Return its id."""
    stored = workspace.http.put(
        "/credentials/openai-compatible",
        json={"secret": KEY, "base_url": f"{model.url}/v1"},
        headers=workspace.headers,
    )
    assert stored.status_code == 204, stored.text
    agent = workspace.post("/agents", {"name": name, "definition": AGENT.format(trust=trust)})
    assert agent.status_code == 201, agent.text
    return str(agent.json()["id"])


def begin(workspace: Workspace, agent_id: str, *, mode: str = "build", title: str = "Tidy up") -> str:
    """Create a session with the agent. Return its id."""
    session = workspace.post("/sessions", {"agent_id": agent_id, "mode": mode, "title": title})
    assert session.status_code == 201, session.text
    return str(session.json()["id"])
