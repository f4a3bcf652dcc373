"""The studio client: a person chats, follows tool calls and approves them. Runs its table in order."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from tests.clients.client_server import Message, Reply, Socket, Space, Stage
from tests.clients.criteria import Report
from tests.clients.studio_tools import TOOLS, Studio, play_registry, play_tools

PHASES = """trust: autonomous
phases:
  - name: solutioning
    tool_permissions:
      file_read: {allowed: true}
  - name: implementation
    tool_permissions:
      file_read: {allowed: true}
      file_write: {allowed: true}
"""
CLIENT_TYPES = ("chat:send", "chat:cancel", "chat:tool-approve")


def play(stage: Stage) -> Report:
    """Runs every criterion of the table."""
    report = Report("studio")
    studio = Studio(stage, stage.space())
    crossed: list[Message] = []
    with studio.space.socket() as socket:
        _messages(report, studio, socket)
        _trust(report, studio, socket)
        _loop(report, studio, socket)
        _limits(report, studio, socket)
        crossed += [*socket.sent, *socket.received]
    _types(report, crossed)
    _providers(report, stage)
    _models(report, stage)
    play_registry(report, stage)
    play_tools(report, stage)
    return report


def of_type(messages: Sequence[Message], kind: str) -> list[dict[str, Any]]:
    return [one["payload"] for one in messages if one["type"] == kind]


def _messages(report: Report, studio: Studio, socket: Socket) -> None:
    session = studio.session("trust: autonomous\n" + TOOLS)
    with report.shows("AC-1", "AC-29", "chat:stream-start", "chat:text-delta", "chat:stream-end", "budget.usage"):
        got = studio.run(socket, session, Reply("Hello there, friend.", thinking="Let me see."))
        end = of_type(got, "chat:stream-end")[-1]
        # On a busy machine a turn may restart as another message. The text of that message counts.
        [start] = [one for one in of_type(got, "chat:stream-start") if one["messageId"] == end["messageId"]]
        deltas = [one for one in of_type(got, "chat:text-delta") if one["messageId"] == end["messageId"]]
        assert "".join(one["content"] for one in deltas) == "Hello there, friend."
        assert {one["messageId"] for one in [start, end, *deltas]} == {start["messageId"]}
        assert {one["conversationId"] for one in [start, end, *deltas]} == {session}
        assert end["usage"].keys() >= {"inputTokens", "outputTokens", "contextTokens", "contextWindow"}
    with report.shows("chat:thinking-delta"):
        thought = of_type(got, "chat:thinking-delta")
        assert "".join(one["content"] for one in thought) == "Let me see."
    with report.shows("AC-30", "AC-21", "chat:tool-start", "chat:tool-result", "message.order"):
        studio.space.put_file("test.txt", "hello")
        got = studio.run(socket, session, Reply("I read.", (("file_read", {"path": "test.txt"}),)), Reply("It greets."))
        kinds = [one["type"] for one in got if one["type"] in ORDER]
        assert kinds == ORDER, kinds
        [start] = of_type(got, "chat:tool-start")
        [result] = of_type(got, "chat:tool-result")
        assert start.keys() >= {"conversationId", "messageId", "toolId", "toolName", "input"}, start
        assert result.keys() >= {"conversationId", "messageId", "toolId", "status", "result", "metadata"}, result
        assert (start["toolName"], start["input"]) == ("file_read", {"path": "test.txt"})
        assert (result["status"], result["result"]) == ("success", "hello")
        assert studio.stage.model.last.body["messages"][-1]["content"] == "hello"
    with report.shows("message.parent"):
        speaking = of_type(got, "chat:stream-end")[0]["messageId"]
        assert (start["messageId"], result["messageId"]) == (speaking, speaking)
    with report.shows("chat:tool-delta", "message.bash-deltas", "AC-15"):
        got = studio.run(socket, session, Reply("", (("bash", {"command": "echo hello; echo world"}),)), Reply("Ok."))
        deltas = of_type(got, "chat:tool-delta")
        assert "".join(one["chunk"] for one in deltas) == "hello\nworld\n", got
        assert all(one.keys() >= {"conversationId", "messageId", "toolId", "chunk"} for one in deltas), deltas
        [result] = of_type(got, "chat:tool-result")
        assert "hello" in result["result"]
        assert result["metadata"]["exitCode"] == 0
    with report.shows("message.camel"):
        payloads = [one["payload"] for one in socket.received if one["type"].startswith("chat:")]
        assert not [name for payload in payloads for name in payload if "_" in name]
    with report.shows("loop.parallel", "message.ids"):
        calls = (("file_read", {"path": "test.txt"}), ("bash", {"command": "echo two"}))
        got = studio.run(socket, session, Reply("Both.", calls), Reply("Ok."))
        results = of_type(got, "chat:tool-result")
        assert len({one["toolId"] for one in results}) == 2
        said = [one["content"] for one in studio.stage.model.last.body["messages"][-2:]]
        assert "hello" in said[0]
        assert "two" in said[1]
    with report.shows("client.blocks"):
        blocks: dict[str, str] = {}
        for one in got:
            if one["type"] == "chat:tool-start":
                blocks[one["payload"]["toolId"]] = "running"
            elif one["type"] == "chat:tool-result":
                assert blocks[one["payload"]["toolId"]] == "running"
                blocks[one["payload"]["toolId"]] = one["payload"]["status"]
        assert list(blocks.values()) == ["success", "success"]
    _history(report, studio, socket)


ORDER = [
    "chat:stream-start",
    "chat:stream-end",
    "chat:tool-start",
    "chat:tool-result",
    "chat:stream-start",
    "chat:stream-end",
]


def _history(report: Report, studio: Studio, socket: Socket) -> None:
    said = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello Ada."}]
    with report.shows("history"):
        session = studio.session(TOOLS)
        studio.run(socket, session, Reply("Ada."), history=said)
        sent = [(one["role"], one["content"]) for one in studio.stage.model.last.body["messages"][1:]]
        assert sent[:2] == [("user", "My name is Ada."), ("assistant", "Hello Ada.")], sent
    with report.shows("history.tools"):
        call = {"id": "toolu_1", "name": "file_read", "input": {"path": "a.txt"}}
        earlier = [
            {"role": "user", "content": "Read a.txt."},
            {"role": "assistant", "content": "", "toolCalls": [call]},
            {"role": "tool", "content": "the words of a.txt", "toolCallId": "toolu_1", "toolName": "file_read"},
            {"role": "assistant", "content": "I read it."},
        ]
        studio.run(socket, studio.session(TOOLS), Reply("Yes."), history=earlier)
        result = json.dumps(studio.stage.model.last.body["messages"])
        assert "the words of a.txt" in result


def _trust(report: Report, studio: Studio, socket: Socket) -> None:
    def begin(session: str, tool: str, args: dict[str, Any]) -> list[Message]:
        studio.stage.model.script(Reply("I try.", ((tool, args),)), Reply("Done."))
        socket.chat("chat:send", conversationId=session, content="Go on.")
        return socket.until(lambda one: one["type"] in ("chat:tool-confirm", "chat:run-state") and _rests(one))

    guided = studio.session(TOOLS)
    with report.shows("AC-22", "chat:tool-confirm", "message.confirm-first"):
        got = begin(guided, "bash", {"command": "echo x > made.txt"})
        [confirm] = of_type(got, "chat:tool-confirm")
        assert confirm.keys() >= {"conversationId", "toolId", "toolName", "input"}
        assert not of_type(got, "chat:tool-start")
        assert not (studio.space.directory / "made.txt").exists()
        assert confirm["messageId"] == of_type(got, "chat:stream-end")[0]["messageId"]
    with report.shows("AC-34", "chat:tool-approve"):
        [confirm] = of_type(got, "chat:tool-confirm")
        socket.chat("chat:tool-approve", toolId=confirm["toolId"], approved=True)
        got = socket.until_type("chat:run-state", state="ended")
        assert of_type(got, "chat:tool-result")[0]["toolId"] == confirm["toolId"]
        assert (studio.space.directory / "made.txt").read_text() == "x\n"
    with report.shows("trust.denied", "AC-24", "errors.kinds", "message.status"):
        [confirm] = of_type(begin(guided, "file_write", {"path": "no.txt", "content": "x"}), "chat:tool-confirm")
        socket.chat("chat:tool-approve", toolId=confirm["toolId"], approved=False)
        got = socket.until_type("chat:run-state", state="ended")
        assert of_type(got, "chat:tool-result")[0]["status"] == "error"
        assert of_type(got, "chat:stream-end")[-1]["content"] == "Done."
        assert not (studio.space.directory / "no.txt").exists()
    with report.shows("trust.guided"):
        assert not of_type(begin(guided, "web_search", {"query": "x"}), "chat:tool-confirm")
    with report.shows("trust.supervised"):
        session = studio.session("trust: supervised\n" + TOOLS)
        [confirm] = of_type(begin(session, "file_read", {"path": "test.txt"}), "chat:tool-confirm")
        socket.chat("chat:tool-approve", toolId=confirm["toolId"], approved=True)
        socket.until_type("chat:run-state", state="ended")
    with report.shows("AC-23"):
        session = studio.session("trust: autonomous\n" + TOOLS)
        got = begin(session, "file_write", {"path": "auto.txt", "content": "x"})
        assert not of_type(got, "chat:tool-confirm")
        assert (studio.space.directory / "auto.txt").exists()
    with report.shows("trust.floor", "permission.trust", "permission.unseen"):
        session = studio.session("trust: autonomous\ntool_permissions:\n  file_read: {allowed: true}\n")
        got = begin(session, "bash", {"command": "echo x"})
        assert of_type(got, "chat:tool-result")[0]["status"] == "error"
        offered = [one["function"]["name"] for one in studio.stage.model.last.body["tools"]]
        assert offered == ["file_read"]
    with report.shows("permission.phase"):
        session = studio.session(PHASES)
        got = begin(session, "file_write", {"path": "early.txt", "content": "x"})
        assert of_type(got, "chat:tool-result")[0]["status"] == "error"
        assert [one["function"]["name"] for one in studio.stage.model.last.body["tools"]] == ["file_read"]
        changed = studio.space.patch(f"/sessions/{session}", {"phase": "implementation"})
        assert changed.status_code == 200, changed.text
        got = begin(session, "file_write", {"path": "late.txt", "content": "x"})
        assert of_type(got, "chat:tool-result")[0]["status"] == "success"
        assert not (studio.space.directory / "early.txt").exists()
        assert (studio.space.directory / "late.txt").exists()
    with report.shows("trust.timeout"):
        limits = studio.space.get("/usage").json()["limits"]
        assert limits["approval_timeout_seconds"] == 7 * 86_400


def _rests(message: Message) -> bool:
    return message["type"] != "chat:run-state" or message["payload"]["state"] in ("ended", "waiting")


def _loop(report: Report, studio: Studio, socket: Socket) -> None:
    session = studio.session("trust: autonomous\n" + TOOLS)
    with report.shows("loop.unknown"):
        got = studio.run(socket, session, Reply("", (("no_such_tool", {}),)), Reply("I see."))
        assert of_type(got, "chat:tool-result")[0]["status"] == "error"
        assert of_type(got, "chat:stream-end")[-1]["content"] == "I see."
    with report.shows("AC-3", "loop.violation"):
        got = studio.run(socket, session, Reply("", (("file_read", {"path": "../../etc/passwd"}),)), Reply("No."))
        [result] = of_type(got, "chat:tool-result")
        assert result["status"] == "error"
        assert "root:" not in result["result"]
        assert of_type(got, "chat:run-state")[-1]["endReason"] == "violation"
    with report.shows("AC-32", "chat:cancel"):
        held = threading.Event()
        studio.stage.model.script(Reply("These are the first words", held=held))
        socket.chat("chat:send", conversationId=session, content="Go on.")
        socket.until_type("chat:text-delta")
        socket.chat("chat:cancel", conversationId=session)
        got = socket.until_type("chat:run-state", state="ended")
        held.set()
        [end] = of_type(got, "chat:stream-end")
        assert "These are the first words".startswith(end["content"])
        assert end["content"]
        assert got[-1]["payload"]["endReason"] == "cancelled"
    with report.shows("AC-31", "loop.turns"):
        session = studio.session("trust: autonomous\nmax_turns: 2\n" + TOOLS)
        again = Reply("", (("file_read", {"path": "test.txt"}),))
        got = studio.run(socket, session, again, again, Reply("I stop here."))
        assert not studio.stage.model.last.may_call
        assert of_type(got, "chat:stream-end")[-1]["content"] == "I stop here."
        default = studio.space.get(f"/agents/{studio.agent(TOOLS)}").json()["rules"]["max_turns"]
        assert default == 200
    with report.shows("chat:error"):
        studio.stage.model.script(Reply(status=400, error='{"error": {"message": "no"}}'))
        socket.chat("chat:send", conversationId="019b97ac-e5f5-735b-b0a6-f3a34fcd4ff1", content="x")
        [error] = of_type(socket.until_type("chat:error"), "chat:error")
        assert error["message"]


def _limits(report: Report, studio: Studio, socket: Socket) -> None:
    with report.shows("loop.deadline"):
        rules = studio.space.get(f"/agents/{studio.agent('run_timeout: 30m' + chr(10) + TOOLS)}").json()["rules"]
        assert rules["run_timeout"] == 1_800
    with report.shows("loop.tool-timeout"):
        definition = "trust: autonomous\ntool_permissions:\n  bash: {allowed: true, timeout: 1s}\n"
        got = studio.run(
            socket, studio.session(definition), Reply("", (("bash", {"command": "sleep 30"}),)), Reply("x")
        )
        assert "timed out" in of_type(got, "chat:tool-result")[0]["result"]
    with report.shows("budget.threshold", "budget.conclude"):
        definition = "trust: autonomous\nbudget_reserve: 0.5\n" + TOOLS
        session = studio.session(definition, window=1_000)
        read = (("file_read", {"path": "test.txt"}),)
        got = studio.run(socket, session, Reply("", read, input_tokens=600), Reply("I conclude."))
        assert not studio.stage.model.last.may_call
        assert of_type(got, "chat:stream-end")[-1]["content"] == "I conclude."


def _types(report: Report, crossed: list[Message]) -> None:
    seen = {one["type"] for one in crossed}
    for criterion in report.criteria:
        if criterion.startswith("chat:"):
            with report.shows(criterion):
                assert criterion in seen, "never crossed the wire"


def _providers(report: Report, stage: Stage) -> None:
    for criterion, provider in (("AC-25", "anthropic"), ("AC-26", "openai-compatible"), ("AC-27", "ollama")):
        studio = Studio(stage, stage.space(), provider=provider)
        studio.space.put_file("test.txt", "hello")
        with report.shows(criterion), studio.space.socket() as socket:
            session = studio.session("trust: autonomous\n" + TOOLS)
            got = studio.run(socket, session, Reply("", (("file_read", {"path": "test.txt"}),)), Reply("Ok."))
            [start] = of_type(got, "chat:tool-start")
            assert (start["toolName"], start["input"]) == ("file_read", {"path": "test.txt"})
        with report.shows("AC-28"):
            body = stage.model.last.body
            if provider == "anthropic":
                assert {"name", "input_schema"} <= body["tools"][0].keys()
                assert body["messages"][-1]["content"][0]["type"] == "tool_result"
            else:
                assert body["tools"][0]["function"].keys() >= {"name", "description", "parameters"}
                assert body["messages"][-1]["role"] == "tool"


def _models(report: Report, stage: Stage) -> None:
    space = stage.space()
    with report.shows("models.tools"):
        found = space.http.get("/providers/openai-compatible/models", headers=space.headers).json()["items"]
        assert {one["id"]: one["supports_tools"] for one in found} | {"toolless": False} == {
            "gpt-scripted": True,
            "gpt-other": True,
            "toolless": False,
        }
    with report.shows("models.toolless"), space.socket() as socket:
        agent = space.agent("provider: openai-compatible\nmodel: toolless\n")
        stage.model.script(Reply("Plainly."))
        socket.run(space.session(agent), "Hi.")
        assert "tools" not in stage.model.last.body
    with report.shows("models.select"), space.socket() as socket:
        session = _selected(space, space.agent("trust: autonomous\ncontext_window: 32000\n"))
        stage.model.script(Reply("By the other."))
        socket.run(session, "Hi.")
        assert stage.model.last.body["model"] == "gpt-other"
        changed = space.patch(f"/sessions/{session}", {"provider": "openai-compatible", "model": "gpt-scripted"})
        assert changed.status_code == 200, changed.text
        stage.model.script(Reply("By the first."))
        socket.run(session, "And now?")
        assert stage.model.last.body["model"] == "gpt-scripted"


def _selected(space: Space, agent: str) -> str:
    return space.session(agent, provider="openai-compatible", model="gpt-other")
