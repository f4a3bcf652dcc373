"""An agent whose model is the scripted fake, and a session with it."""

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import KEY, ModelServer

AGENT = """
provider: openai-compatible
model: gpt-fake
trust: {trust}
toolsets: [workspace, studio, shell, history]
context_window: 100000
tool_permissions:
  read: {{allowed: true}}
  write: {{allowed: true}}
  edit: {{allowed: true}}
  ask_user: {{allowed: true}}
  bash: {{allowed: true}}
  plan_write: {{allowed: true}}
  exit_plan_mode: {{allowed: true}}
"""


def hire(workspace: Workspace, model: ModelServer, *, name: str = "coder", trust: str = "guided") -> str:
    """An agent of the workspace, for whom Ada's own key counts; its id."""
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
    """A session with the agent; its id."""
    session = workspace.post("/sessions", {"agent_id": agent_id, "mode": mode, "title": title})
    assert session.status_code == 201, session.text
    return str(session.json()["id"])
