"""A workspace as its clients use it: tools and versions over HTTP, and its directory on disk."""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.shapes import result_of

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Someone:
    """A registered and logged-in person."""

    id: str
    email: str
    token: str


@dataclass(frozen=True)
class Workspace:
    """A workspace accessed with one token. ``project`` is the directory of its files on disk."""

    http: httpx2.Client
    id: str
    token: str | None
    project: Path

    def seen_with(self, token: str | None) -> "Workspace":
        """The same workspace with another token."""
        return replace(self, token=token)

    def call(self, tool: str, /, **args: Any) -> httpx2.Response:
        """Calls a tool."""
        response = self.post("/tools", {"tool": tool, "args": args})
        assert (response.status_code == 200) is response.json()["success"], "200 and success always come together"
        return response

    def result(self, tool: str, /, **args: Any) -> Any:
        """Makes a call that must succeed and returns its result."""
        return result_of(self.call(tool, **args))

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self.http.post(f"/workspaces/{self.id}{path}", json=body, headers=self.headers)

    def get(self, path: str, /, **query: Any) -> httpx2.Response:
        return self.http.get(f"/workspaces/{self.id}{path}", params=query, headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    # Creating files

    def write(self, path: str, content: Any) -> Any:
        """Writes a tracked file. Returns the result."""
        return self.result("write", path=path, content=content)

    def put_file(self, path: str, content: str | bytes) -> Path:
        """Writes an untracked file, or changes a file outside the server."""
        file = self.on_disk(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    # Reading

    def on_disk(self, path: str) -> Path:
        return self.project / path.lstrip("/")

    def names(self, **args: Any) -> list[str]:
        """The paths that ``ls`` lists, in order."""
        return [entry["path"] for entry in self.result("ls", **args)["entries"]]

    def file_id(self, path: str) -> str:
        """The id of a tracked file."""
        folder = path.rpartition("/")[0] or "/"
        entries = self.result("ls", path=folder, limit=0)["entries"]
        [found] = [entry["id"] for entry in entries if entry["path"] == path]
        assert isinstance(found, str)
        return found

    def versions(self, file_id: str) -> list[dict[str, Any]]:
        """A file's versions, newest first."""
        found = result_of(self.get(f"/files/{file_id}/versions"))["versions"]
        assert isinstance(found, list)
        return found

    def history(self, file_id: str) -> list[tuple[str, Any]]:
        """The author and content of each version, oldest first; the content of a deletion is None."""
        result = [result_of(self.get(f"/versions/{version['version_id']}")) for version in self.versions(file_id)]
        return [(version["author"]["kind"], version["content"]) for version in reversed(result)]

    def deleted(self) -> list[dict[str, Any]]:
        """Deleted files that can be restored, latest first."""
        found = result_of(self.get("/deleted-files"))["files"]
        assert isinstance(found, list)
        return found

    # Adding members and agents

    def admit(self, person: Someone, role: str) -> "Workspace":
        """The workspace accessed by a new member."""
        made = self.post("/members", {"email": person.email, "role": role})
        assert made.status_code == 201, made.text
        return self.seen_with(person.token)

    def agent(self, rules: str) -> "Workspace":
        """The workspace accessed with the key of a new agent that has these rules (YAML)."""
        agent = self.post("/agents", {"name": f"agent-{secrets.token_hex(4)}", "definition": rules})
        assert agent.status_code == 201, agent.text
        key = self.post(f"/agents/{agent.json()['id']}/keys", {"name": "test"})
        assert key.status_code == 201, key.text
        return self.seen_with(key.json()["secret"])
