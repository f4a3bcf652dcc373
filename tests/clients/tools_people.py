"""The rest of the Tools API's page: questions, plans, and chats and agents as files."""

import json
from typing import Any
from uuid import UUID

import httpx2

from tests.clients.client_server import Reply, Space, Stage
from tests.clients.criteria import Report
from tests.clients.tools_examples import Page


def play_questions(report: Report, space: Space) -> None:
    def asked(*questions: dict[str, Any]) -> httpx2.Response:
        return space.call("ask_user", questions=list(questions))

    item = {"name": "n", "question": "How many?", "schema": '{"type":"number","minimum":1,"maximum":100}'}
    with report.shows("ask.empty"):
        assert asked().status_code == 400
    with report.shows("ask.four"):
        assert asked(*({**item, "name": f"n{number}"} for number in range(4))).status_code == 200
        assert asked(*({**item, "name": f"n{number}"} for number in range(5))).status_code == 400
    with report.shows("ask.id", "ask.ephemeral"):
        question = asked(item).json()["result"]["question_id"]
        assert UUID(question).version == 7
        assert space.get(f"/paused-calls/{question}").json()["state"] == "pending"
    with report.shows("ask.validated"):
        assert space.post(f"/paused-calls/{question}/answers", {"answers": {"n": 101}}).status_code == 400
        assert space.post(f"/paused-calls/{question}/answers", {"answers": {"n": 7}}).status_code == 200
    with report.shows("ask.buttons"):
        many = {"type": "array", "items": {"type": "string", "enum": ["A", "B"]}}
        buttons = [{"label": "A", "value": "A"}]
        refused = asked({"name": "n", "question": "Which?", "schema": json.dumps(many), "buttons": buttons})
        assert refused.status_code == 400, refused.text


def play_plans(report: Report, page: Page) -> None:
    space = page.space
    made = space.result("plan_write", title="First", content="# Overview\n- Goal 1\n")
    path = made["path"]
    with report.shows("plan.names", "plan.frontmatter", "plan.type"):
        name = path.removeprefix("/plans/").removesuffix(".plan")
        assert len(name.split("-")) == 3
        assert made["metadata"].keys() >= {"title", "status", "created_at"}
        assert (space.directory / path[1:]).read_text().startswith("---\n")
        assert space.result("file_info", path=path)["file_type"] == "plan"
    with report.shows("plan_read.metadata", "plan_read.name", "plan_read.clean"):
        got = space.result("plan_read", name=name)
        assert (got["metadata"]["title"], got["content"].startswith("# Overview")) == ("First", True)
    with report.shows("plan_read.legacy"):
        space.result("write", path="/plans/old-grey-mare.plan", content="# Legacy\n", file_type="plan")
        legacy = space.result("plan_read", path="/plans/old-grey-mare.plan")
        assert (legacy["metadata"], legacy["content"]) == (None, "# Legacy\n")
    with report.shows("plan_read.cursor"):
        assert space.call("plan_read", path=path, cursor=1).status_code == 200
    with report.shows("plan_edit.keeps", "plan_edit.insert"):
        space.result("plan_edit", path=path, old_string="- Goal 1", new_string="- Goal 1 (completed)")
        space.result("plan_edit", path=path, insert_line=0, insert_content="Inserted")
        got = space.result("plan_read", path=path)
        assert got["content"].startswith("Inserted\n# Overview\n- Goal 1 (completed)")
        assert got["metadata"]["title"] == "First"
    with report.shows("plan_edit.only"):
        space.result("write", path="/x.md", content="x")
        assert space.call("plan_edit", path="/x.md", old_string="x", new_string="y").status_code == 400
    with report.shows("plan_list.filter", "plan_list.newest"):
        newest = space.result("plan_write", title="Second", content="# B\n", status="approved")["path"]
        assert [one["path"] for one in space.result("plan_list", status="approved")["plans"]] == [newest], newest
        assert space.result("plan_list")["plans"][0]["path"] == newest

    def leave(session: str | None, plan: str = path) -> httpx2.Response:
        return page.send("exit_plan_mode", {"plan_file_path": plan}, **({"session_id": session} if session else {}))

    with report.shows("exit.asked", "exit.question"):
        bare = space.post("/sessions", {"mode": "plan"}).json()["id"]
        assert leave(bare).status_code == 403, leave(bare).text
        assert leave(None).status_code == 400, leave(None).text
    with report.shows("exit.accept"):
        answer = leave(page.accepted(path, "Reject"))
        assert answer.status_code == 403, answer.text
    with report.shows("exit.button"):
        answer = leave(page.accepted(path, by_button=False))
        assert answer.status_code == 403, answer.text
    with report.shows("exit.file"):
        assert leave(page.accepted("/plans/not-there-yet.plan"), "/plans/not-there-yet.plan").status_code in (400, 404)
    with report.shows("exit.type"):
        space.result("write", path="/plans/just-a-document.plan", content="# X\n")
        wrong = leave(page.accepted("/plans/just-a-document.plan"), "/plans/just-a-document.plan")
        assert (wrong.status_code, "not a plan file" in wrong.text) == (400, True), wrong.text
    with report.shows("exit.content"):
        space.result("write", path="/plans/one-empty-page.plan", content="", file_type="plan")
        answer = leave(page.accepted("/plans/one-empty-page.plan"), "/plans/one-empty-page.plan")
        assert answer.status_code == 400, answer.text
    with report.shows("exit.mode"):
        session = page.accepted(path)
        assert leave(session).json()["result"] == {"mode": "build", "plan_file": path}
        assert space.get(f"/sessions/{session}").json()["mode"] == "build"
    with report.shows("plan.modes"):
        agent_id = space.agent("trust: autonomous\ntool_permissions:\n  plan_write: {allowed: true}\n")
        agent, planning = space.as_agent(agent_id), space.session(agent_id, mode="plan")
        body = {"tool": "plan_write", "args": {"title": "T", "content": "C"}, "session_id": planning}
        answer = agent.post("/tools", body)
        assert answer.status_code == 200, answer.text


def play_virtual(report: Report, stage: Stage) -> None:
    space = stage.space()
    agent = space.agent("provider: openai-compatible\nmodel: gpt-scripted\ncontext_window: 32000\n")
    session = space.session(agent, title="Release notes")
    stage.model.script(Reply("The zebra is striped."))
    with space.socket() as socket:
        socket.run(session, "Tell me about zebras.")

    def entries() -> dict[str, dict[str, Any]]:
        return {one["path"]: one for one in space.result("ls", recursive=True, limit=0)["entries"]}

    with report.shows("ls.virtual"):
        virtual = {one["file_type"] for one in entries().values() if one["is_virtual"]}
        assert virtual >= {"Chat", "Agent"}, virtual
    chat = next((path for path, one in entries().items() if one["file_type"] == "Chat"), "/none.chat")
    with report.shows("ls.display-name"):
        assert entries()[chat]["display_name"] == "Release notes"
        assert entries()[chat]["name"] != "Release notes"
    with report.shows("read.virtual", "info.virtual"):
        content = space.result("read", path=chat)["content"]
        assert "Tell me about zebras." in content
        assert "The zebra is striped." in content
        assert space.result("file_info", path=chat)["file_type"] == "chat"
    with report.shows("grep.virtual"):
        assert chat in {one["path"] for one in space.result("grep", pattern="zebra is striped")["matches"]}
    with report.shows("glob.virtual"):
        assert chat in {one["path"] for one in space.result("glob", pattern="*.chat")["matches"]}
    with report.shows("find.real"):
        assert chat in {one["path"] for one in space.result("find", name="*.chat")["matches"]}
    with report.shows("write.virtual"):
        refused = space.call("write", path=chat, content="x", overwrite=True)
        assert refused.status_code == 400
        assert chat in entries()
    with report.shows("edit.virtual"):
        assert space.call("edit", path=chat, old_string="zebra", new_string="horse").status_code == 400
        assert chat in entries()
