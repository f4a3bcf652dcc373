"""A workspace as its clients have it: tools and versions over HTTP, and its directory as a program beside them."""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.shapes import result_of

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Someone:
    """A person who is registered and logged in."""

    id: str
    email: str
    token: str


@dataclass(frozen=True)
class Workspace:
    """A workspace, seen with one token. ``project`` is where its files lie on disk."""

    http: httpx2.Client
    id: str
    token: str | None
    project: Path

    def seen_with(self, token: str | None) -> "Workspace":
        """The same workspace with another's token."""
        return replace(self, token=token)

    def call(self, tool: str, /, **args: Any) -> httpx2.Response:
        """Calls a tool."""
        response = self.post("/tools", {"tool": tool, "args": args})
        assert (response.status_code == 200) is response.json()["success"], "200 and success always come together"
        return response

    def result(self, tool: str, /, **args: Any) -> Any:
        """What a call that must succeed results in."""
        return result_of(self.call(tool, **args))

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self.http.post(f"/workspaces/{self.id}{path}", json=body, headers=self.headers)

    def get(self, path: str, /, **query: Any) -> httpx2.Response:
        return self.http.get(f"/workspaces/{self.id}{path}", params=query, headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    # Putting things there

    def write(self, path: str, content: Any) -> Any:
        """A file that is in the history; its result."""
        return self.result("write", path=path, content=content)

    def place(self, path: str, content: str | bytes) -> Path:
        """A file that only the disk knows, or a change behind the server's back."""
        file = self.on_disk(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    # Looking

    def on_disk(self, path: str) -> Path:
        return self.project / path.lstrip("/")

    def names(self, **args: Any) -> list[str]:
        """The paths that ``ls`` lists, in order."""
        return [entry["path"] for entry in self.result("ls", **args)["entries"]]

    def file_id(self, path: str) -> str:
        """The id of a file that is in the history."""
        folder = path.rpartition("/")[0] or "/"
        entries = self.result("ls", path=folder, limit=0)["entries"]
        [found] = [entry["id"] for entry in entries if entry["path"] == path]
        assert isinstance(found, str)
        return found

    def versions(self, file_id: str) -> list[dict[str, Any]]:
        """A file's versions, the newest first."""
        found = result_of(self.get(f"/files/{file_id}/versions"))["versions"]
        assert isinstance(found, list)
        return found

    def history(self, file_id: str) -> list[tuple[str, Any]]:
        """Who made each version and what it held, the oldest first; a deletion holds None."""
        told = [result_of(self.get(f"/versions/{version['version_id']}")) for version in self.versions(file_id)]
        return [(version["author"]["kind"], version["content"]) for version in reversed(told)]

    def deleted(self) -> list[dict[str, Any]]:
        """What can be restored, the latest first."""
        found = result_of(self.get("/deleted-files"))["files"]
        assert isinstance(found, list)
        return found

    # Letting others in

    def admit(self, person: Someone, role: str) -> "Workspace":
        """The workspace as a new member has it."""
        made = self.post("/members", {"email": person.email, "role": role})
        assert made.status_code == 201, made.text
        return self.seen_with(person.token)

    def agent(self, rules: str) -> "Workspace":
        """The workspace as a new agent with these rules (YAML) has it, by its key."""
        agent = self.post("/agents", {"name": f"agent-{secrets.token_hex(4)}", "definition": rules})
        assert agent.status_code == 201, agent.text
        key = self.post(f"/agents/{agent.json()['id']}/keys", {"name": "test"})
        assert key.status_code == 201, key.text
        return self.seen_with(key.json()["secret"])
