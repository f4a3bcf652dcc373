"""The plain client: prompts over a WebSocket, shows tokens and tool calls, and runs its table in order."""

import json
from typing import Any

from tests.clients.client_server import Message, Reply, Socket, Space, Stage
from tests.clients.criteria import Report
from tests.clients.model import KEY

PROTOCOL = "toolcrib.plain"
AGENT = "provider: copilot\nmodel: gpt-scripted\ntoolsets: [project]\ncontext_window: 32000\n"


def play(stage: Stage) -> Report:
    """Runs every criterion of the table."""
    report = Report("plain")
    space = stage.space()
    agent = space.agent(AGENT)
    space.patch("", {"default_agent_id": agent})
    space.put_file("hello.txt", "Hello, world!")
    space.put_file("sub/nested.txt", "nested content")
    space.put_file("package.json", '{"name": "demo"}\n')
    with space.socket(PROTOCOL) as socket:
        client = Client(socket, stage)
        _connection(report, client, space)
        _conversation(report, client, space)
        _read_file(report, client)
        _list_directory(report, client)
        _loop(report, client, space)
        _failures(report, client, space)
        _person(report, client)
    _limits(report, stage, space)
    return report


class Client:
    """Sends a prompt and collects messages until the end."""

    def __init__(self, socket: Socket, stage: Stage) -> None:
        self.socket = socket
        self.model = stage.model
        self.session: str | None = None

    def prompt(self, text: str, *replies: Reply, session: str | None = None) -> list[Message]:
        self.model.script(*replies)
        message = {"type": "prompt", "text": text} | ({"sessionId": session} if session else {})
        self.socket.send(message)
        got = self.socket.until(lambda one: one["type"] in ("done", "error"))
        if got[-1]["type"] == "done":
            self.session = got[-1]["sessionId"]
        return got

    def tool(self, name: str, arguments: Any) -> Message:
        """The result of one call that the model makes in a new session."""
        got = self.prompt("Do it.", Reply(calls=((name, arguments),)), Reply("Done."))
        [result] = [one for one in got if one["type"] == "tool_result"]
        return result


def _connection(report: Report, client: Client, space: Space) -> None:
    with report.shows("connect"):
        assert client.socket.connection.subprotocol == PROTOCOL
        assert space.http.get(f"/workspaces/{space.id}").status_code == 401


def _conversation(report: Report, client: Client, space: Space) -> None:
    with report.shows("prompt.begins", "done", "token", "frames", "loop.text"):
        got = client.prompt("hi", Reply("Hello world, how are you?"))
        assert "".join(one["text"] for one in got if one["type"] == "token") == "Hello world, how are you?", got
        assert got[-1] == {"type": "done", "sessionId": client.session}
        assert [one["role"] for one in space.messages(str(client.session))] == ["user", "assistant"]
    first = client.session
    with report.shows("prompt.unknown-session"):
        unknown = "019b97ac-e5f5-735b-b0a6-f3a34fcd4ff1"
        assert client.prompt("hi", session=unknown)[-1] == {"type": "error", "message": f"Session not found: {unknown}"}
    with report.shows("prompt.continues", "wire.history"):
        client.prompt("and then?", Reply("More."), session=first)
        said = [(one["role"], one["content"]) for one in client.model.last.body["messages"][1:]]
        expected = [("user", "hi"), ("assistant", "Hello world, how are you?"), ("user", "and then?")]
        assert said == expected, said
    with report.shows("wire.body", "wire.authorization", "wire.copilot-headers", "wire.initiator-user", "wire.tools"):
        asked = client.model.last
        assert (asked.body["model"], asked.body["stream"]) == ("gpt-scripted", True)
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert asked.headers["openai-intent"] == "conversation-edits"
        assert asked.headers["user-agent"].startswith("toolcrib/")
        assert asked.headers["x-initiator"] == "user"
        for tool in asked.body["tools"]:
            assert tool["type"] == "function"
            assert {"name", "description", "parameters"} <= tool["function"].keys()
    with report.shows("system.text", "system.tools", "system.honest", "system.name"):
        [first_message, *_] = client.model.last.body["messages"]
        assert first_message["role"] == "system"
        assert len(first_message["content"]) > 50
        assert "read_file" in first_message["content"]
        assert "list_directory" in first_message["content"]
        for claim in ("cannot read", "cannot modify", "no access to the project"):
            assert claim not in first_message["content"]


def _tools(client: Client) -> dict[str, dict[str, Any]]:
    return {one["function"]["name"]: one["function"]["parameters"] for one in client.model.last.body["tools"]}


def _read_file(report: Report, client: Client) -> None:
    with report.shows("tool_call", "tool_result", "tool_result.ok", "ids", "order", "read.root", "loop.tools"):
        calls = Reply(calls=(("read_file", {"path": "hello.txt"}),))
        got = client.prompt("Read it.", calls, Reply("It greets."))
        kinds = [one["type"] for one in got]
        assert [kind for kind in kinds if kind != "token"] == ["tool_call", "tool_result", "done"], kinds
        assert kinds.index("token") > kinds.index("tool_result")
        call, result = got[0], got[1]
        assert (call["name"], call["arguments"]) == ("read_file", {"path": "hello.txt"})
        assert result == {"type": "tool_result", "id": call["id"], "name": "read_file", "output": "Hello, world!"}
    with report.shows("wire.calls", "wire.finish", "wire.assistant", "wire.initiator-agent"):
        sent = client.model.last
        assistant, result = sent.body["messages"][-2:]
        [call] = assistant["tool_calls"]
        assert (call["type"], call["function"]["name"]) == ("function", "read_file")
        assert json.loads(call["function"]["arguments"]) == {"path": "hello.txt"}
        assert sent.headers["x-initiator"] == "agent"
    with report.shows("wire.result"):
        assert result == {"role": "tool", "tool_call_id": call["id"], "content": "Hello, world!"}, result
    with report.shows("read.name", "read.parameters"):
        schema = _tools(client)["read_file"]
        assert (schema["properties"]["path"]["type"], schema["required"]) == ("string", ["path"])
    with report.shows("read.nested"):
        assert client.tool("read_file", {"path": "sub/nested.txt"})["output"] == "nested content"
    with report.shows("read.missing", "tool_result.error"):
        missing = client.tool("read_file", {"path": "nope.txt"})
        assert (missing["output"], missing["isError"]) == ("Error: file not found: nope.txt", True), missing
        assert client.model.last.body["messages"][-1]["content"] == "Error: file not found: nope.txt"
    with report.shows("read.outside"):
        outside = client.tool("read_file", {"path": "../../etc/passwd"})
        assert outside["isError"] is True
        assert "outside" in outside["output"]
    with report.shows("read.no-path"):
        assert client.tool("read_file", {})["isError"] is True
    with report.shows("read.directory"):
        wrong = client.tool("read_file", {"path": "sub"})
        expected = "Error: 'sub' is a directory, not a file. Use list_directory instead."
        assert (wrong["output"], wrong["isError"]) == (expected, True), wrong


def _list_directory(report: Report, client: Client) -> None:
    with report.shows("list.root", "list.slash"):
        listed = client.tool("list_directory", {"path": "."})
        assert "isError" not in listed
        assert set(listed["output"].split("\n")) == {"hello.txt", "package.json", "sub/"}, listed
    with report.shows("list.name", "list.parameters"):
        schema = _tools(client)["list_directory"]
        assert schema["properties"]["path"]["type"] == "string"
        assert "path" not in schema.get("required", [])
    with report.shows("list.sub"):
        assert client.tool("list_directory", {"path": "sub"})["output"] == "nested.txt"
    with report.shows("list.missing"):
        missing = client.tool("list_directory", {"path": "nope"})
        assert (missing["output"], missing["isError"]) == ("Error: directory not found: nope", True), missing
    with report.shows("list.outside"):
        outside = client.tool("list_directory", {"path": "../../"})
        assert outside["isError"] is True
        assert "outside" in outside["output"]
    with report.shows("list.file"):
        wrong = client.tool("list_directory", {"path": "hello.txt"})
        assert (wrong["output"], wrong["isError"]) == ("Error: 'hello.txt' is not a directory", True), wrong
    with report.shows("list.default"):
        assert "hello.txt" in client.tool("list_directory", {})["output"].split("\n")


def _loop(report: Report, client: Client, space: Space) -> None:
    two = Reply("I look.", (("read_file", {"path": "hello.txt"}), ("list_directory", {"path": "sub"})))
    with report.shows("loop.sequential"):
        client.prompt("Both.", two, Reply("Seen."))
        *_, one, other = client.model.last.body["messages"]
        assert [one["role"], other["role"]] == ["tool", "tool"]
        assert "Hello" in one["content"]
        assert "nested" in other["content"]
    session = str(client.session)
    with report.shows("stored.roles", "stored.order"):
        kept = space.messages(session)
        assert [one["role"] for one in kept] == ["user", "assistant", "tool", "tool", "assistant"], kept
    with report.shows("stored.calls", "stored.none"):
        kept = space.messages(session)
        calls = kept[1]["metadata"]["tool_calls"]
        assert [(one["type"], one["function"]["name"]) for one in calls] == [
            ("function", "read_file"),
            ("function", "list_directory"),
        ]
        assert kept[0]["metadata"] is None
    with report.shows("stored.results"):
        results = [one for one in space.messages(session) if one["role"] == "tool"]
        assert [one["content"] for one in results] == ["Hello, world!", "nested.txt"]
        assert [one["metadata"]["tool_call_id"] for one in results] == [one["id"] for one in calls]
    with report.shows("loop.unknown"):
        unknown = client.tool("nonexistent", {})
        assert (unknown["output"], unknown["isError"]) == ("Unknown tool: nonexistent", True), unknown
        assert client.model.last.body["messages"][-1]["content"] == "Unknown tool: nonexistent"
    with report.shows("loop.bad-json"):
        client.tool("list_directory", '{"path": ')
        assert "JSON" in client.model.last.body["messages"][-1]["content"]


def _failures(report: Report, client: Client, space: Space) -> None:
    with report.shows("error", "error.provider"):
        got = client.prompt("hi", Reply(status=401, error='{"error": {"message": "Unauthorized"}}'))
        assert got[-1]["type"] == "error"
        assert got[-1]["message"].startswith("Provider error (401): "), got[-1]
        assert "Unauthorized" in got[-1]["message"]
    with report.shows("error.unexpected"):
        # A path outside the project ends the run. It is no failure of the provider.
        ended = client.prompt("hi", Reply(calls=(("read_file", {"path": "../../etc/passwd"}),)))[-1]
        assert ended["message"].startswith("Unexpected error during generation"), ended
    with report.shows("stored.partial"):
        client.prompt("hi", *[Reply("It breaks o", cut=True)] * 3)
        sessions = space.get("/sessions").json()["items"]
        [_, last] = space.messages(sessions[0]["id"])
        assert last["metadata"]["cut"] is True


def _limits(report: Report, stage: Stage, space: Space) -> None:
    looping = Reply(calls=(("list_directory", {}),))
    agent = space.agent(f"{AGENT}max_turns: 3\n")
    with space.socket(PROTOCOL) as socket:
        client = Client(socket, stage)
        with report.shows("loop.limit"):
            session = space.session(agent)
            client.prompt("Go on.", looping, looping, looping, Reply(""), session=session)
            assert not client.model.last.may_call
            assert "Stopped after 3 iterations" in space.messages(session)[-1]["content"]
        with report.shows("loop.default-limit"):
            rules = space.get(f"/agents/{agent}").json()["rules"]
            plain = space.get(f"/agents/{space.agent(AGENT)}").json()["rules"]
            assert (rules["max_turns"], plain["max_turns"]) == (3, 200)
        with report.shows("wire.no-tools"):
            bare = space.session(space.agent(AGENT.replace("[project]", "[]") + "tool_permissions: {}\n"))
            client.prompt("hi", Reply("Hello."), session=bare)
            assert "tools" not in client.model.last.body


def _person(report: Report, client: Client) -> None:
    def shown(got: list[Message]) -> str:
        lines = {"tool_call": "[Calling {name}...]", "tool_result": "[{name} done]"}
        return "".join(one.get("text") or lines.get(one["type"], "").format(**one) for one in got)

    with report.shows("person.files", "person.status"):
        calls = Reply(calls=(("list_directory", {}),))
        got = client.prompt("What files are in this project?", calls, Reply("Three."))
        assert shown(got) == "[Calling list_directory...][list_directory done]Three."
    with report.shows("person.read"):
        calls = Reply(calls=(("read_file", {"path": "package.json"}),))
        got = client.prompt("Read the package.json", calls, Reply("A demo."))
        assert shown(got) == "[Calling read_file...][read_file done]A demo."
