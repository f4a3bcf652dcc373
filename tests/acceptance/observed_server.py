"""A server of which everything is collected that an operator sees: its log, its metrics and its traces."""

import json
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.canaries import Canaries
from tests.acceptance.otlp_collector import Collector, otlp_collector
from tests.databases import migrated_database, urls_of
from tests.fakes.model_server import SSE, Answer, ModelServer, Received, model_server_beside, plain
from tests.faults.scripted import said
from tests.faults.server import Server
from tests.redteam.target import Login, Target, bearer, made, open_target
from tests.wait_until import PATIENCE


@dataclass
class ObservedServer:
    """A server with two tenants, and what was seen of it. Each part is searched once."""

    target: Target
    collector: Collector
    canaries: Canaries
    model: ModelServer
    owner_url: str
    _searched: dict[str, int] = field(default_factory=dict)

    @property
    def server(self) -> Server:
        return self.target.server

    def metrics(self) -> str:
        token = self.server.environment["TOOLCRIB_METRICS_TOKEN"]
        return self._get("/metrics", bearer(token)).text

    def restart(self) -> None:
        """Start the server after it ended, and forget the connections to it."""
        self.server.start_and_recover()
        with suppress(httpx2.TransportError):
            self.target.http.get("/registration")

    def check(self) -> None:
        """Search in all that was logged, counted and traced since the last time."""
        trace_id = secrets.token_hex(16)
        self._get("/api/v1/registration", {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"})
        # Spans are sent in their order, so that those before it have come.
        self.collector.wait_for(lambda: any(span.trace_id == trace_id for span in self.collector.spans))
        for what, data in (
            ("the log", self.server.logged().encode()),
            ("the traces", b"".join(self.collector.bodies)),
        ):
            # A canary may be where the last search ended.
            found = self.canaries.found_in(data[max(0, self._searched.get(what, 0) - 100) :])
            self._searched[what] = len(data)
            assert not found, f"{len(found)} in {what}. The first: {found[0]}"
        found = self.canaries.found_in(self.metrics().encode())
        assert not found, f"{len(found)} in the metrics. The first: {found[0]}"

    def register(self, name: str) -> Login:
        """Register a person whose password is a canary, and log them in."""
        canaries, http = self.canaries, self.target.http
        person = {"email": f"{name}-{secrets.token_hex(4)}@example.com", "password": canaries.plant("a password")}
        id_ = made(http.post("/auth/register", json=person))["id"]
        assert http.post("/auth/login", json=person | {"password": canaries.plant("a password")}).status_code == 401
        login = made(http.post("/auth/login", json=person))
        http.cookies.clear()
        canaries.keep_secret("an access token", login["access_token"])
        canaries.keep_secret("a refresh token", login["refresh_token"])
        return Login(id_, person["email"], login["access_token"], login["refresh_token"])

    def _get(self, path: str, headers: dict[str, str]) -> httpx2.Response:
        return httpx2.get(f"{self.server.origin}{path}", headers=headers, trust_env=False, timeout=PATIENCE)


@contextmanager
def observed_server(directory: Path) -> Iterator[ObservedServer]:
    """Start a server with two tenants, a collector of traces, and a model for its runs."""
    canaries = Canaries()
    environment = {
        "TOOLCRIB_METRICS_TOKEN": canaries.keep_secret("the metrics token", secrets.token_urlsafe(48)),
        "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
        "TOOLCRIB_ALLOWED_PRIVATE_MCP_HOSTS": "*",
        "TOOLCRIB_TOOLS_MODULE": "tests.fakes.raising_tools",
        "TOOLCRIB_SEARXNG_URL": "http://127.0.0.1:9",
        "TOOLCRIB_BRAVE_API_KEY": canaries.plant("the key of a search engine"),
        "TOOLCRIB_BRAVE_URL": "http://127.0.0.1:9",
        "OTEL_TRACES_SAMPLER": "parentbased_always_on",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100000",
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={canaries.plant('the key of the collector')}",
    }
    with (
        migrated_database() as name,
        otlp_collector() as collector,
        model_server_beside(ModelServer(responder=answer)) as model,
        open_target(directory, urls_of(name), TOOLCRIB_OTLP_ENDPOINT=collector.url, **environment) as target,
    ):
        for what in ("TOOLCRIB_JWT_SECRET", "TOOLCRIB_AUDIT_SEAL_KEY"):
            canaries.keep_secret(what, target.server.environment[what])
        for tenant in (target.ada, target.mallory):
            canaries.keep_secret("an access token", tenant.owner.token)
            canaries.keep_secret("a refresh token", tenant.owner.refresh_token)
            canaries.keep_secret("an API key", tenant.key)
            canaries.keep_secret("an agent's key", tenant.agent_key)
        yield ObservedServer(target, collector, canaries, model, urls_of(name).owner)


def answer(request: Received) -> Answer:
    """Do what the last message of the user says: each ending of a request to a model, with a canary in it."""
    if "messages" not in request.body:
        return plain(200, {"object": "list", "data": [{"id": "fake"}]})
    messages = request.body["messages"]
    told = next(one for one in reversed(messages) if one["role"] == "user")
    ending, canary = str(told["content"] if isinstance(told["content"], str) else told["content"][-1]["text"]).split()[
        :2
    ]
    if messages[-1]["role"] == "tool":
        return said(f"Now I know {canary}.")
    match ending:
        case "work":
            return said(
                f"I think of {canary}.",
                ("write", {"path": f"/{canary}.txt", "content": canary}),
                ("edit", {"path": f"/{canary}.txt", "old_string": f"not {canary}", "new_string": canary}),
                ("bash", {"command": f"echo {canary}; echo {canary} >&2; exit 3"}),
                ("raise_error", {"text": canary}),
                (canary, {canary: canary}),
            )
        case "cut":
            return Answer((f'data: {{"choices": [{{"delta": {{"content": "{canary}'.encode(),), cut=True)
        case "junk":
            return Answer((f"data: {canary}\n\n".encode(),))
        case "html":
            return Answer((f"<html>{canary}</html>".encode(),), content_type="text/html")
        case "within":
            event = json.dumps({"error": {"message": canary, "code": canary, "type": canary}})
            return Answer((f"data: {event}\n\n".encode(),), content_type=SSE)
        case status:
            error = {"message": f"Wrong key {canary}.", "type": canary, "code": canary, "param": canary}
            return plain(int(status), {"error": error}, x_request_id=canary, retry_after="0")


def filled(value: Any, canaries: Canaries, where: str, email: str = "") -> Any:
    """Replace the texts that the requests of other tests mark as free."""
    if isinstance(value, dict):
        return {filled(k, canaries, where, email): filled(v, canaries, where, email) for k, v in value.items()}
    if isinstance(value, list):
        return [filled(one, canaries, where, email) for one in value]
    if not isinstance(value, str):
        return value
    return email if value == "{intruder}" else value.replace("intruder", canaries.plant(where))


def planted(value: Any, canaries: Canaries, where: str, choose: random.Random) -> Any:
    """Replace about half of the texts, and add a field that nobody knows."""
    if isinstance(value, dict):
        more = {canaries.plant(where): canaries.plant(where)} if choose.random() < 0.2 else {}
        return {name: planted(one, canaries, where, choose) for name, one in value.items()} | more
    if isinstance(value, list):
        return [planted(one, canaries, where, choose) for one in value]
    return canaries.plant(where) if isinstance(value, str) and choose.random() < 0.5 else value
