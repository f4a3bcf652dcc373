"""A person at a real server, over HTTP, with a workspace and access to models."""

from typing import Any

from tests.fakes.model_server import KEY, ModelServer
from tests.faults.server import Server, client_of

_PERSON = {"email": "ada@example.com", "password": "correct horse battery staple"}
# Local URLs of the providers differ in where their paths begin.
_BASES = {"openai-compatible": "/v1", "anthropic": "", "ollama": ""}


class ServerCluster:
    """Ada, her token, and her workspace. Every request uses its own connection: servers die between them."""

    def __init__(self, token: str, workspace: str) -> None:
        self.token = token
        self.workspace = workspace

    @classmethod
    async def opened(cls, server: Server) -> "ServerCluster":
        async with client_of(server) as http:
            (await http.post("/auth/register", json=_PERSON)).raise_for_status()
            token = (await http.post("/auth/login", json=_PERSON)).raise_for_status().json()["access_token"]
        async with client_of(server, token) as http:
            workspace = (await http.post("/workspaces", json={"name": "w"})).raise_for_status().json()["id"]
        return cls(token, workspace)

    async def agent(self, server: Server, model: ModelServer, rules: str, *, provider: str) -> str:
        """Create an agent that uses the fake of this provider's model and return its id."""
        return await self.agent_at(server, f"{model.url}{_BASES[provider]}", KEY, rules, provider=provider)

    async def agent_at(self, server: Server, url: str, key: str, rules: str, *, provider: str) -> str:
        access = {"secret": key, "base_url": url}
        await self.send(server, "PUT", f"/credentials/{provider}", access)
        made = await self.send(server, "POST", self.at("agents"), {"name": provider, "definition": rules})
        return str(made["id"])

    async def session(self, server: Server, agent: str) -> str:
        return str((await self.send(server, "POST", self.at("sessions"), {"agent_id": agent}))["id"])

    async def say(self, server: Server, session: str, text: str) -> str:
        """Send a message and return the id of its run."""
        sent = await self.send(server, "POST", self.at(f"sessions/{session}/messages"), {"text": text})
        return str(sent["id"])

    async def send(self, server: Server, method: str, path: str, body: Any = None) -> Any:
        async with client_of(server, self.token) as http:
            answer = await http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def at(self, path: str) -> str:
        return f"/workspaces/{self.workspace}/{path}"
