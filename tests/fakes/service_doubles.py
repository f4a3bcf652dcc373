"""Doubles of two services that MCP programs use: a few routes of the REST APIs of GitLab and Redmine."""

import json
from dataclasses import dataclass, field
from typing import Any

_PERSON = {
    "id": 7,
    "username": "ada",
    "name": "Ada",
    "avatar_url": "https://gitlab.example.com/a.png",
    "web_url": "https://gitlab.example.com/ada",
}


@dataclass
class Service:
    """An ASGI application that records who asked for what. Every request needs the token."""

    token: str
    requests: list[str] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["raw_path"].decode().partition("?")[0]
        self.requests.append(f"{scope['method']} {path}")
        status, answer = self._answered(scope["method"], path, headers, body)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = b"application/octet-stream" if isinstance(answer, bytes) else b"application/json"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": content})

    def _answered(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        raise NotImplementedError


class GitLab(Service):
    """Creates issues: https://docs.gitlab.com/api/issues/."""

    def _answered(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        if headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"message": "401 Unauthorized"}
        if (method, path) != ("POST", "/api/v4/projects/tools%2Fcrib/issues"):
            return 404, {"error": "404 Not Found"}
        given = json.loads(body)
        if headers.get("content-type") != "application/json" or not given.get("title"):
            return 400, {"error": "title is missing"}
        issue = {
            "id": 70 + len(self.issues),
            "iid": 1 + len(self.issues),
            "project_id": 3,
            "title": given["title"],
            "description": given.get("description") or "",
            "state": "opened",
            "author": _PERSON,
            "assignees": [],
            "labels": [],
            "milestone": None,
            "created_at": "2026-11-18T00:00:00Z",
            "updated_at": "2026-11-18T00:00:00Z",
            "closed_at": None,
            "web_url": f"https://gitlab.example.com/tools/crib/-/issues/{1 + len(self.issues)}",
        }
        self.issues.append(issue)
        return 201, issue


class Redmine(Service):
    """Lists issues and serves an attachment: https://www.redmine.org/projects/redmine/wiki/Rest_api."""

    attachment = b"from the service\n"

    def _answered(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        if headers.get("x-redmine-api-key") != self.token:
            return 401, {"errors": ["Unauthorized"]}
        match method, path:
            case "GET", "/issues.json":
                issue = {"id": 5, "subject": "Sharpen the saw", "status": {"id": 1, "name": "New"}}
                return 200, {"issues": [issue], "total_count": 1, "offset": 0, "limit": 25}
            case "GET", "/attachments/9.json":
                return 200, {"attachment": {"id": 9, "filename": "note.txt", "filesize": len(self.attachment)}}
            case "GET", "/attachments/download/9/note.txt":
                return 200, self.attachment
            case _:
                return 404, {"errors": ["Not found"]}
