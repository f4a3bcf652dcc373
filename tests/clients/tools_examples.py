"""The examples of the Tools API's page, sent unchanged and compared by shape."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.clients.client_server import Space, Stage
from tests.clients.criteria import HERE, Report

RUST = "".join(f"// line {number}\n" for number in range(150)) + "// TODO: Implement error handling\n"
FILES: Mapping[str, str] = {
    "/documents/report.md": "# Annual Report\n\nThis is the content...\n",
    "/documents/archive/old.md": "old\n",
    "/documents/old-report.md": "old\n",
    "/documents/old-name.md": "named\n",
    "/documents/existing-file.txt": "exists\n",
    "/src/main.rs": "fn old_function() {\n\tprintln!();\n}\n" + RUST,
    "/src/lib.rs": "pub fn hello() {}\n",
    "/main.rs": "fn main() {}\n",
    "/logs/error.log": "".join(f"error {number}\n" for number in range(200)),
    "/large.log": "".join(f"line {number}\n" for number in range(1_500)),
    "/file.txt": "file\n",
    "/archive/kept.txt": "kept\n",
    "/config.json": '{\n  "key": "value"\n}',
    "/.env": "A=1\n",
    "/README.md": "# Project\n\n" + "words\n" * 148,
    "/docs/index.md": "docs\n",
    "/old-path.txt": "old\n",
    "/large-file.log": "large\n",
    "/folder/x.txt": "x\n",
}
PLAN = "/plans/gleeful-tangerine-expedition.plan"
APPROVAL = {
    "name": "approval",
    "question": "Review the implementation plan. Ready to proceed to Build Mode?",
    "schema": '{"type":"string","enum":["Accept","Reject"]}',
    "buttons": [{"label": "Accept", "value": "Accept"}, {"label": "Reject", "value": "Reject"}],
}


@dataclass
class Page:
    """A workspace for the examples, and the recorded responses."""

    space: Space
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def send(self, tool: str, args: Mapping[str, Any], **more: Any) -> httpx2.Response:
        answer = self.space.post("/tools", {"tool": tool, "args": args, **more})
        if answer.status_code == 200:
            self.answers.setdefault(tool, []).append(answer.json())
        return answer

    def accepted(self, plan: str, answer: str = "Accept", *, by_button: bool = True) -> str:
        """Creates a session in plan mode and answers the question about this plan. Returns the session's id."""
        session = self.space.post("/sessions", {"mode": "plan"}).json()["id"]
        question = {**APPROVAL, "question": f"Review {plan}. Ready to proceed to Build Mode?"}
        asked = self.send("ask_user", {"questions": [question]}, session_id=session).json()["result"]
        said = {"answers": {"approval": answer}, "answered_with_button": ["approval"] if by_button else []}
        answered = self.space.post(f"/paused-calls/{asked['question_id']}/answers", said)
        assert answered.status_code == 200, answered.text
        return str(session)


def examples() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "tools_api_examples.json").read_text())
    return found


def play_examples(report: Report, stage: Stage) -> Page:
    page = Page(stage.space())
    for path, content in FILES.items():
        page.space.result("write", path=path, content=content)
    for one in examples():
        with report.shows(f"example.{one['line']}"):
            _play(page, stage, one)
    return page


def _play(page: Page, stage: Stage, example: dict[str, Any]) -> None:
    line, body = example["line"], example["body"]
    match example["kind"]:
        case "request":
            _request(page, line, body)
        case "arguments":
            _arguments(page, example["tool"], body)
        case "schema":
            question = {"name": "it", "question": "Which?", "schema": json.dumps(body)}
            assert page.send("ask_user", {"questions": [question]}).status_code == 200
        case "response":
            _response(page, line, example["tool"], body)
        case "error":
            _error(page, stage, line, body)


def _request(page: Page, line: int, body: dict[str, Any]) -> None:
    more: dict[str, Any] = {}
    if line == 1803:
        page.space.call("rm", path=body["args"]["path"])
    if line == 1834:
        more["session_id"] = page.accepted(body["args"]["plan_file_path"])
    if line == 2003:
        page.send("plan_write", {"title": "Feature Implementation Plan", "path": PLAN, "content": GOALS})
    if line == 2112:
        page.send("plan_write", {"title": "Approved", "content": "# Plan\n", "status": "approved"})
    if line == 2591:
        page.send("write", {"path": "/notes/thoughts.md", "content": "again"})
    answer = page.send(body["tool"], body["args"], **more)
    assert answer.status_code == (400 if line == 2562 else 200), answer.text


GOALS = "# Overview\n\n## Goals\n- Goal 1\n- Goal 2"


def _arguments(page: Page, tool: str, args: dict[str, Any]) -> None:
    if tool == "exit_plan_mode":
        plan = args["plan_file_path"]
        page.send("write", {"path": plan, "content": "# Plan\n", "file_type": "plan", "overwrite": True})
        assert page.send(tool, args, session_id=page.accepted(plan)).status_code == 200
        return
    if tool == "edit":
        args = {**args, "last_read_hash": page.space.result("read", path=args["path"])["hash"]}
    answer = page.send(tool, args)
    assert answer.status_code == 200, answer.text
    # Restores what the example removed, for the examples below.
    if tool in ("rm", "edit"):
        page.send("write", {"path": args["path"], "content": FILES[args["path"]], "overwrite": True})


def _response(page: Page, line: int, tool: str, shape: dict[str, Any]) -> None:
    if line == 1544:
        page.send(tool, {"paths": ["/config.json", "/nonexistent.txt"]})
    reasons = []
    for answer in page.answers[tool]:
        try:
            same_shape(answer, shape)
        except AssertionError as error:
            reasons.append(str(error))
        else:
            return
    raise AssertionError("; ".join(reasons) or "no answer")


def _error(page: Page, stage: Stage, line: int, body: dict[str, Any]) -> None:
    space = page.space
    requests: dict[int, tuple[int, dict[str, Any], str | None]] = {
        226: (401, {"tool": "ls", "args": {}}, ""),
        234: (403, {"tool": "ls", "args": {}}, stage.person()[1]),
        242: (404, {"tool": "invalid_tool", "args": {}}, None),
        569: (400, {"tool": "write", "args": {"path": "/documents/notes.md", "content": ""}}, None),
        2444: (404, {"tool": "git_commit", "args": {}}, None),
        2465: (404, {"tool": "git_commit", "args": {}}, None),
        2476: (404, {"tool": "read", "args": {"path": "/nonexistent/file.txt"}}, None),
        2487: (400, {"tool": "read", "args": {}}, None),
        2498: (403, {"tool": "ls", "args": {}}, stage.person()[1]),
    }
    status, call, token = requests[line]
    headers = space.headers if token is None else {"Authorization": f"Bearer {token}"} if token else {}
    answer = space.http.post(f"/workspaces/{space.id}/tools", json=call, headers=headers)
    got = answer.json()
    assert answer.status_code == status, answer.text
    if line == 2444:
        assert {"error", "code"} <= got.keys()
        return
    assert got["code"] == body["code"], got
    if line == 2487:
        assert "path" in got["fields"]
        return
    assert got["error"] == body["error"], got
    if "fields" in body:
        assert got["fields"] == body["fields"], got


def same_shape(got: Any, shape: Any, where: str = "answer") -> None:
    """Asserts that every field of the example exists with the same type. A null in the example matches any value."""
    if shape is None:
        return
    if isinstance(shape, dict):
        assert isinstance(got, dict), f"{where}: {got!r}"
        for name, value in shape.items():
            assert name in got, f"{where} has no {name}"
            same_shape(got[name], value, f"{where}.{name}")
    elif isinstance(shape, list):
        assert isinstance(got, list), f"{where}: {got!r}"
        if shape:
            assert got, f"{where} is empty"
            same_shape(got[0], shape[0], f"{where}[0]")
    elif isinstance(shape, bool):
        assert isinstance(got, bool), f"{where}: {got!r}"
    elif isinstance(shape, int):
        assert isinstance(got, int), f"{where}: {got!r}"
    else:
        assert isinstance(got, str), f"{where}: {got!r}"


# The tables of arguments and of response fields


def play_tables(report: Report, page: Page) -> None:
    """Checks every argument and every response field that the page lists."""
    offered = {one["name"]: one for one in page.space.get("/tools").json()}
    base = {one["tool"]: one["body"] for one in examples() if one["kind"] == "arguments"}
    base |= {
        "write": {"path": "/written", "content": "x"},
        "plan_write": {"title": "T", "content": "C"},
        "plan_read": {"path": PLAN},
        "plan_edit": {"path": PLAN, "old_string": "x", "new_string": "y"},
        "plan_list": {},
    }
    for one in report.criteria.values():
        kind, _, rest = one.id.partition(".")
        if kind == "arg":
            tool, _, name = rest.partition(".")
            with report.shows(one.id):
                _argument(page, offered[tool], base[tool], name, required=", required:" in one.what)
        elif kind == "field":
            tool, _, path = rest.partition(".")
            with report.shows(one.id):
                assert any(_has(answer["result"], path) for answer in page.answers[tool]), "in no answer"
        elif kind == "tool":
            with report.shows(one.id):
                _tool(page, offered[rest], one.what)


def _argument(page: Page, tool: dict[str, Any], base: dict[str, Any], name: str, *, required: bool) -> None:
    assert name.rpartition(".")[2] in _names(tool["inputSchema"]), f"the schema has no {name}"
    if not required:
        return
    args = json.loads(json.dumps(base))
    holder = args["questions"][0] if "[]." in name else args
    del holder[name.rpartition(".")[2]]
    answer = page.space.call(tool["name"], **args)
    assert answer.status_code == 400, f"without it: {answer.text}"


def _names(schema: Any) -> set[str]:
    """Every property name in a schema, at any depth."""
    if isinstance(schema, list):
        return {name for one in schema for name in _names(one)}
    if not isinstance(schema, dict):
        return set()
    own = set(schema.get("properties", {}))
    return own | {name for value in schema.values() for name in _names(value)}


def _has(value: Any, path: str) -> bool:
    for step in path.removeprefix("result.").split("."):
        name = step.removesuffix("[]")
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
        if step.endswith("[]"):
            if not isinstance(value, list) or not value:
                return False
            value = value[0]
    return True


def _tool(page: Page, tool: dict[str, Any], what: str) -> None:
    arguments, _, returned = what.partition("Arguments ")[2].partition("; returns ")
    known = _names(tool["inputSchema"])
    if tool["name"] == "exit_plan_mode":
        assert "plan_file_path" in known
    else:
        for name in re.findall(r"`(\w+)(?:\[\])?\??`", arguments):
            assert name in known, f"{tool['name']} takes no {name}"
    results = [answer["result"] for answer in page.answers[tool["name"]]]
    inner = {"synced", "offset", "limit", "total_lines"} if tool["name"] not in ("read",) else set()
    for name in re.findall(r"`(\w+)(?:\[\])?`", returned):
        if name not in inner | {"timestamps"}:
            assert any(name in result for result in results), f"{tool['name']} returns no {name}"
