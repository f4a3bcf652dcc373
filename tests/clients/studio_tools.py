"""The studio client's tools, one by one, as an agent calls them: files, commands, web search, permissions."""

import json
from typing import Any

import httpx2

from tests.clients.client_server import Message, Reply, Socket, Space, Stage
from tests.clients.criteria import Report

TOOLS = """tool_permissions:
  file_read: {allowed: true}
  file_write: {allowed: true}
  bash: {allowed: true}
  web_search: {allowed: true}
"""
NAMES = {"file_read", "file_write", "bash", "web_search"}


class Studio:
    """A workspace whose agents use the studio dialect with one provider."""

    def __init__(self, stage: Stage, space: Space, *, provider: str = "openai-compatible") -> None:
        self.stage = stage
        self.space = space
        self.provider = provider

    def agent(self, definition: str, *, window: int = 32_000) -> str:
        model = f"provider: {self.provider}\nmodel: gpt-scripted\ncontext_window: {window}\ntoolsets: [studio]\n"
        return self.space.agent(model + definition)

    def session(self, definition: str, *, window: int = 32_000) -> str:
        return self.space.session(self.agent(definition, window=window))

    def run(self, socket: Socket, session: str, *replies: Reply, **more: Any) -> list[Message]:
        self.stage.model.script(*replies)
        return socket.run(session, "Go on.", **more)

    def offered(self, definition: str) -> set[str]:
        key = self.space.as_agent(self.space.agent(definition))
        return {one["name"] for one in key.get("/tools").json()}


class Hands:
    """Calls by an autonomous agent, over HTTP."""

    def __init__(self, space: Space, definition: str = "trust: autonomous\ntoolsets: [studio]\n" + TOOLS) -> None:
        self.key = space.as_agent(space.agent(definition))

    def __call__(self, tool: str, **args: Any) -> Any:
        answer = self.key.call(tool, **args)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def refused(self, tool: str, **args: Any) -> httpx2.Response:
        answer = self.key.call(tool, **args)
        refusal = answer.status_code != 200 or answer.json()["result"]["is_error"]
        assert refusal, answer.text
        return answer


def play_registry(report: Report, stage: Stage) -> None:
    studio = Studio(stage, stage.space())
    people = {one["name"]: one for one in studio.space.get("/tools").json()}
    with report.shows("AC-8", "AC-33"):
        assert people.keys() >= NAMES
    with report.shows("AC-2"):
        assert people["file_read"].keys() == {"name", "description", "inputSchema"}
    with report.shows("AC-9"):
        two = "toolsets: [studio]\ntool_permissions:\n  file_read: {allowed: true}\n  web_search: {allowed: true}\n"
        assert studio.offered(two) == {"file_read", "web_search"}
    with report.shows("AC-10", "permission.absent"):
        assert studio.offered("toolsets: [studio]\n") == {"file_read", "web_search"}
    with report.shows("AC-11"):
        assert studio.space.get("/mcp-servers").status_code == 200
    for name, required, properties in (
        ("file_read", {"path"}, {"path"}),
        ("file_write", {"path", "content"}, {"path", "content"}),
        ("bash", {"command"}, {"command", "timeout"}),
        ("web_search", {"query"}, {"query", "max_results"}),
    ):
        with report.shows("search.schema" if name == "web_search" else f"{name}.schema"):
            schema = people[name]["inputSchema"]
            assert set(schema["required"]) == required
            assert set(schema["properties"]) >= properties
    with report.shows("permission.yaml"):
        rules = (
            "tool_permissions:\n  bash: {allowed: true, timeout: 120s}\n  file_write: {allowed: true, paths: [a/**]}\n"
        )
        agent = studio.space.agent(rules)
        kept = studio.space.get(f"/agents/{agent}").json()["rules"]["tool_permissions"]
        assert (kept["bash"]["timeout"], kept["file_write"]["paths"]) == (120, ["a/**"])


def play_tools(report: Report, stage: Stage) -> None:
    space = stage.space()
    hands = Hands(space)
    _files(report, space, hands)
    _zones(report, space)
    _bash(report, stage, space, hands)
    _web_search(report, stage, hands)


def _files(report: Report, space: Space, hands: Hands) -> None:
    space.put_file("test.txt", "hello")
    with report.shows("AC-12", "file_read.relative", "AC-5"):
        for path in ("test.txt", "./test.txt", str(space.directory / "test.txt")):
            got = hands("file_read", path=path)
            assert (got["output"], got["is_error"]) == ("hello", False)
    with report.shows("AC-13"):
        got = hands("file_read", path="none.txt")
        assert got["is_error"] is True
        assert "file not found" in got["output"].lower()
    with report.shows("AC-4"):
        (space.directory / "escape").symlink_to("/etc/passwd")
        assert "root:" not in hands.refused("file_read", path="escape").text
    with report.shows("AC-6"):
        hands.refused("file_write", path=".env", content="A=1")
        assert not (space.directory / ".env").exists()
    with report.shows("file_write.git"):
        hands.refused("file_write", path=".git/config", content="x")
    with report.shows("AC-14", "file_write.result"):
        got = hands("file_write", path="new/dir/file.txt", content="data")
        assert (space.directory / "new/dir/file.txt").read_text() == "data"
        assert got["output"] == "wrote 4 bytes to new/dir/file.txt", got
    with report.shows("file_write.overwrites", "file_write.empty"):
        hands("file_write", path="new/dir/file.txt", content="")
        assert (space.directory / "new/dir/file.txt").read_bytes() == b""
    with report.shows("file_read.large"):
        space.put_file("large.txt", "x" * 1_200_000)
        answer = space.call("file_read", path="large.txt").json()["result"]
        assert "truncated" in answer["output"][-300:]
        assert len(answer["output"]) < 1_100_000
    with report.shows("file_read.binary"):
        space.put_file("binary", bytes(range(256)))
        assert hands("file_read", path="binary")["is_error"] is False


def _zones(report: Report, space: Space) -> None:
    central = space.directory.parent / "central"
    scoped = Hands(
        space,
        "trust: autonomous\ntoolsets: [studio]\ntool_permissions:\n"
        '  file_write: {allowed: true, paths: ["src/**", "_out/**"]}\n  file_read: {allowed: true}\n',
    )
    with report.shows("zone.central"):
        everything = Hands(space)
        everything("file_write", path=str(central / "insights.md"), content="kept")
        assert (central / "insights.md").read_text() == "kept"
        assert everything("file_read", path=str(central / "insights.md"))["output"] == "kept"
    with report.shows("permission.zones"):
        scoped("file_write", path="src/a.txt", content="x")
        scoped("file_write", path=str(central / "_out/b.txt"), content="x")
        assert scoped.key.call("file_write", path="docs/c.txt", content="x").status_code in (200, 403)
        assert not (space.directory / "docs/c.txt").exists()
    with report.shows("permission.all"):
        all_of_it = Hands(
            space,
            'trust: autonomous\ntoolsets: [studio]\ntool_permissions:\n  file_write: {allowed: true, paths: ["**"]}\n',
        )
        all_of_it("file_write", path="anywhere/at/all.txt", content="x")


def _bash(report: Report, stage: Stage, space: Space, hands: Hands) -> None:
    with report.shows("AC-16"):
        got = hands("bash", command="exit 42")
        assert (got["is_error"], got["metadata"]["exitCode"]) == (True, 42)
    with report.shows("AC-17"):
        got = hands("bash", command="sleep 300", timeout=1)
        assert got["is_error"] is True
        assert "timed out" in got["output"]
    with report.shows("AC-7"):
        got = hands("bash", command="env")["output"]
        assert "PATH=" in got
        assert "MY_API_KEY" not in got
        assert "secret-of-the-server" not in got
    with report.shows("bash.pwd"):
        got = hands("bash", command="pwd; ls")["output"]
        assert "test.txt" in got
    with report.shows("bash.stderr"):
        got = hands("bash", command="echo out; echo err >&2")["output"]
        assert {"out", "err"} <= set(got.split())
    with report.shows("bash.truncated"):
        got = space.call("bash", command="yes | head -c 300000").json()["result"]["output"]
        assert len(got) < 110_000
    with report.shows("bash.any"):
        assert hands("bash", command="rm -rf /tmp/nothing; chmod 600 test.txt; true")["is_error"] is False


def _web_search(report: Report, stage: Stage, hands: Hands) -> None:
    model = stage.model
    results = [{"title": f"T{n}", "url": f"https://{n}.example", "content": f"S{n}", "score": 1} for n in range(8)]
    found = [{"title": "B", "url": "https://b.example", "description": "Brave’s"}]
    model.searxng, model.brave = {"results": results}, {"web": {"results": found}}
    with report.shows("AC-18", "search.list", "search.metadata", "search.searxng"):
        model.searched.clear()
        got = hands("web_search", query="test")
        assert got["is_error"] is False
        assert got["output"].startswith("1. T0")
        for part in ("https://0.example", "S0", "5. T4"):
            assert part in got["output"]
        assert "T5" not in got["output"]
        assert got["metadata"] == {"provider": "searxng", "resultCount": 5}
        [asked] = model.searched
        assert (asked.path, asked.query["q"], asked.query["format"]) == ("/search", ["test"], ["json"])
    with report.shows("search.max"):
        assert hands("web_search", query="test", max_results=2)["metadata"]["resultCount"] == 2
    with report.shows("AC-19", "search.brave"):
        model.searxng = None
        model.searched.clear()
        got = hands("web_search", query="test")
        assert (got["is_error"], got["metadata"]["provider"]) == (False, "brave")
        assert model.searched[-1].headers["x-subscription-token"] == "brave-key"
    with report.shows("search.nothing"):
        model.searxng = {"results": []}
        assert hands("web_search", query="test")["metadata"]["provider"] == "brave"
    with report.shows("AC-20"):
        model.searxng = model.brave = None
        assert hands("web_search", query="test")["is_error"] is True
    with report.shows("search.empty-query"):
        hands.refused("web_search", query="")
    with report.shows("search.own-key"):
        model.searxng, model.brave = {"results": results}, {"web": {"results": found}}
        person = {"Authorization": f"Bearer {stage.person()[1]}"}
        own = stage.space(person["Authorization"].removeprefix("Bearer "))
        stored = own.http.put("/credentials/brave", json={"secret": "my-own-key", "check": True}, headers=person)
        assert stored.status_code == 204, stored.text
        assert Hands(own)("web_search", query="test")["metadata"]["provider"] == "brave"
        assert model.searched[-1].headers["x-subscription-token"] == "my-own-key"
        assert "my-own-key" not in own.http.get("/credentials", headers=person).text
        assert hands("web_search", query="test")["metadata"]["provider"] == "searxng"
    assert json.dumps(results)
