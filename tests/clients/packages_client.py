"""A runtime for agent packages: its agents call `fs.*` tools on mounts. Runs its table in order."""

import hashlib
import io
import json
import zipfile
from typing import Any

from tests.clients.client_server import Reply, Space, Stage
from tests.clients.criteria import Report

AGENT = """
provider: openai-compatible
model: gpt-scripted
context_window: 32000
trust: autonomous
toolsets: [mounts]
max_sandbox_violations: 1000
tool_permissions:
  fs.list: {allowed: true}
  fs.read: {allowed: true}
  fs.search: {allowed: true}
  fs.write: {allowed: true}
  fs.apply_patch: {allowed: true}
"""
WORKFLOW = """---
currentNodeId: start
stepsCompleted: [start]
variables:
  a: 1
---
# The workflow

Body.
"""


class Runtime:
    """A workspace with one agent and one session."""

    def __init__(self, stage: Stage, space: Space, definition: str = AGENT) -> None:
        self.stage = stage
        self.space = space
        self.agent = space.agent(definition)
        self.session = space.session(self.agent)

    def turn(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Sends one message and returns the parsed results of the model's calls."""
        wire = tuple((name.replace(".", "_"), args) for name, args in calls)
        self.stage.model.script(Reply(calls=wire), Reply("Done."))
        with self.space.socket() as socket:
            result = socket.run(self.session, "Go on.")
        assert self.stage.model.asked, result[-1]
        results = self.stage.model.last.body["messages"][-len(calls) :]
        assert [one["role"] for one in results] == ["tool"] * len(calls), results
        return [json.loads(one["content"]) for one in results]

    def call(self, tool: str, **args: Any) -> Any:
        [result] = self.turn((tool, args))
        return result


def play(stage: Stage) -> Report:
    """Runs every criterion of the table."""
    report = Report("packages")
    space = stage.space()
    runtime = Runtime(stage, space)
    space.put_file("src/index.ts", "one\nneedle here\nthree\n")
    _mounts(report, stage, runtime)
    _definitions(report, stage, runtime)
    _list_and_read(report, stage, runtime)
    _search(report, runtime)
    _write(report, stage, runtime)
    _patch(report, runtime)
    _log(report, runtime)
    _packages(report, stage)
    return report


def _code(result: Any) -> str:
    assert result["ok"] is False, result
    assert isinstance(result["error"]["message"], str)
    return str(result["error"]["code"])


def _mounts(report: Report, stage: Stage, runtime: Runtime) -> None:
    with report.shows("mount.project"):
        assert runtime.call("fs.read", path="@project/src/index.ts")["content"] == "one\nneedle here\nthree\n"
    with report.shows("mount.state"):
        assert runtime.call("fs.write", path="@state/notes.md", content="kept")["ok"] is True
        assert runtime.call("fs.read", path="@state/notes.md")["content"] == "kept"
    with report.shows("mount.state-apart"):
        other = Runtime(stage, runtime.space)
        assert _code(other.call("fs.read", path="@state/notes.md")) == "ENOENT"
    with report.shows("mount.root"):
        assert "src" in json.dumps(runtime.call("fs.list", path="@project")["entries"])
    for criterion, paths in {
        "mount.unknown": ["@foo/x"],
        "mount.missing": ["src/index.ts"],
        "mount.nul": ["@project/a\0b"],
        "mount.absolute": ["/etc/passwd", "C:\\Windows"],
        "mount.dots": ["@project/../evil.txt", "@project/src/../src/index.ts"],
    }.items():
        with report.shows(criterion, "error.sandbox"):
            for path in paths:
                assert _code(runtime.call("fs.read", path=path)) == "E_SANDBOX_VIOLATION", path
    with report.shows("mount.pkg-write"):
        for tool, more in (
            ("fs.write", {"content": "x"}),
            ("fs.apply_patch", {"patch": _patch_of(currentNodeId={"set": "x"})}),
        ):
            assert _code(runtime.call(tool, path="@pkg/x.md", **more)) == "E_SANDBOX_VIOLATION"
    with report.shows("mount.symlink"):
        link = runtime.space.directory / "escape"
        link.symlink_to("/etc/passwd")
        refused = runtime.call("fs.read", path="@project/escape")
        assert refused["ok"] is False
        assert "root:" not in json.dumps(refused)
        link.unlink()


def _patch_of(**update: Any) -> dict[str, Any]:
    return {"operation": "updateFrontmatter", "update": update}


def _definitions(report: Report, stage: Stage, runtime: Runtime) -> None:
    offered = {one["name"]: one["inputSchema"] for one in runtime.space.as_agent(runtime.agent).get("/tools").json()}
    names = ["fs.list", "fs.read", "fs.search", "fs.write", "fs.apply_patch"]
    with report.shows("tools.names"):
        assert set(offered) == set(names)
    with report.shows("tools.wire"):
        sent = [one["function"]["name"] for one in stage.model.last.body["tools"]]
        assert set(sent) == {name.replace(".", "_") for name in names}, sent
    for criterion, required, properties in (
        ("tools.list", ["path"], {"path"}),
        ("tools.read", ["path"], {"path", "startLine", "endLine"}),
        ("tools.search", ["path", "pattern"], {"path", "pattern", "before", "after", "maxMatches"}),
        ("tools.write", ["path", "content"], {"path", "content", "ifMatchSha256"}),
        ("tools.patch", ["path", "patch"], {"path", "patch"}),
    ):
        with report.shows(criterion):
            name = {"tools.patch": "fs.apply_patch"}.get(criterion, criterion.replace("tools.", "fs."))
            schema = offered[name]
            assert set(schema["required"]) == set(required)
            assert set(schema["properties"]) == properties
    with report.shows("result.message", "result.union"):
        runtime.call("fs.list", path="@project")
        message = stage.model.last.body["messages"][-1]
        assert message.keys() >= {"role", "tool_call_id", "content"}
        assert json.loads(message["content"])["ok"] is True


def _list_and_read(report: Report, stage: Stage, runtime: Runtime) -> None:
    space = runtime.space
    space.put_file("many/.hidden", "x")
    (space.directory / "many/link").symlink_to("x")
    space.put_file("many/seen.txt", "x")
    with report.shows("list.children", "list.hidden"):
        listed = json.dumps(runtime.call("fs.list", path="@project/many")["entries"])
        assert "seen.txt" in listed
        assert ".hidden" not in listed
        assert "link" not in listed
    with report.shows("list.truncated"):
        for number in range(201):
            space.put_file(f"crowd/{number:03}.txt", "")
        crowd = runtime.call("fs.list", path="@project/crowd")
        assert (crowd["ok"], crowd["truncated"], len(crowd["entriesPreview"])) == (True, True, 200)
        assert crowd["hint"]
    text = "".join(f"line {number}\n" for number in range(1, 10_001))
    space.put_file("big.txt", text)
    with report.shows("read.text", "read.facts"):
        got = runtime.call("fs.read", path="@project/src/index.ts")
        body = b"one\nneedle here\nthree\n"
        assert (got["bytes"], got["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    with report.shows("read.window"):
        got = runtime.call("fs.read", path="@project/big.txt", startLine=3, endLine=4)
        assert got["content"].splitlines() == ["line 3", "line 4"]
        assert got["bytes"] == len(text)
    with report.shows("read.window-wrong", "error.internal"):
        assert _code(runtime.call("fs.read", path="@project/big.txt", startLine=4, endLine=3)) == "E_INTERNAL"
    with report.shows("read.limit"):
        got = runtime.call("fs.read", path="@project/big.txt")
        assert got["truncated"] is True
        assert 0 < len(got["contentPreview"]) <= 50_000
        assert "startLine" in got["hint"]
        assert got["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    with report.shows("error.enoent"):
        assert _code(runtime.call("fs.read", path="@project/none.txt")) == "ENOENT"
    small = Runtime(stage, space, AGENT + "max_read_bytes: 1000\nmax_write_bytes: 10\n")
    with report.shows("read.agent-limit"):
        assert len(small.call("fs.read", path="@project/big.txt")["contentPreview"]) <= 1_000
    with report.shows("error.read-limit"):
        # A change of frontmatter reads the complete document. This one is too large for that.
        runtime.call("fs.write", path="@state/small.md", content="x")
        huge = space.directory.parent / "state" / runtime.session / "huge.md"
        huge.write_text("---\na: 1\n---\n" + "x" * 11_000_000)
        refused = runtime.call("fs.apply_patch", path="@state/huge.md", patch=_patch_of(currentNodeId={"set": "x"}))
        assert _code(refused) == "E_READ_LIMIT"
        huge.unlink()
    with report.shows("write.limit", "error.write-limit"):
        assert _code(small.call("fs.write", path="@state/x", content="x" * 11)) == "E_WRITE_LIMIT"
        assert _code(runtime.call("fs.write", path="@state/x", content="x" * 100_001)) == "E_WRITE_LIMIT"


def _search(report: Report, runtime: Runtime) -> None:
    space = runtime.space
    space.put_file("src/deep/more.ts", "NEEDLE\n")
    for skipped in (".git/x", "node_modules/x", ".cache/x"):
        space.put_file(skipped, "needle\n")
    with report.shows("search.recursive", "search.skipped", "search.shape", "search.defaults", "search.substring"):
        found = runtime.call("fs.search", path="@project", pattern="needle")
        [match] = found["matches"]
        assert (match["path"], match["line"], match["text"]) == ("@project/src/index.ts", 2, "needle here")
        assert (match["before"], match["after"]) == (["one"], ["three"])
        assert runtime.call("fs.search", path="@project/src", pattern="n.edle")["matches"] == []
    with report.shows("search.regex"):
        found = runtime.call("fs.search", path="@project/src", pattern="/n.+dle/i")
        assert len(found["matches"]) == 2
    with report.shows("search.truncated"):
        space.put_file("flood.txt", "drop\n" * 80)
        found = runtime.call("fs.search", path="@project", pattern="drop")
        assert (len(found["matches"]), found["truncated"]) == (50, True)
        assert found["stats"]
        assert len(runtime.call("fs.search", path="@project", pattern="drop", maxMatches=3)["matches"]) == 3


def _write(report: Report, stage: Stage, runtime: Runtime) -> None:
    with report.shows("write.result", "write.parents", "write.atomic"):
        made = runtime.call("fs.write", path="@project/out/a/b.txt", content="data")
        sha = hashlib.sha256(b"data").hexdigest()
        expected = {"ok": True, "path": "@project/out/a/b.txt", "bytesWritten": 4, "sha256After": sha}
        assert expected.items() <= made.items(), made
        assert [one.name for one in (runtime.space.directory / "out/a").iterdir()] == ["b.txt"]
    with report.shows("write.match", "error.precondition"):
        wrong = runtime.call("fs.write", path="@project/out/a/b.txt", content="new", ifMatchSha256="0" * 64)
        assert _code(wrong) == "E_PRECONDITION_FAILED"
        right = runtime.call("fs.write", path="@project/out/a/b.txt", content="new", ifMatchSha256=sha)
        assert right["ok"] is True


def _patch(report: Report, runtime: Runtime) -> None:
    path = "@state/workflow.md"

    def patched(**update: Any) -> tuple[Any, str]:
        """The result and the file afterwards, in one message of the session."""
        runtime.call("fs.write", path=path, content=WORKFLOW)
        result = runtime.call("fs.apply_patch", path=path, patch=_patch_of(**update))
        after = runtime.call("fs.read", path=path)
        assert result["ok"] is True, result
        return result, str(after["content"])

    with report.shows("patch.state-only"):
        runtime.space.put_file("w.md", WORKFLOW)
        outside = runtime.call("fs.apply_patch", path="@project/w.md", patch=_patch_of(currentNodeId={"set": "x"}))
        assert outside["ok"] is False
    with report.shows("patch.steps", "patch.body", "patch.result"):
        result, text = patched(stepsCompleted={"append": ["start", "next"]})
        assert text.count("start") == 2
        assert "next" in text
        assert text.endswith("# The workflow\n\nBody.\n")
        assert result.keys() >= {"path", "sha256Before", "sha256After"}
    with report.shows("patch.variables"):
        _, text = patched(variables={"set": {"b": 2}})
        assert "a: 1" in text
        assert "b: 2" in text
    with report.shows("patch.decisions"):
        assert "because" in patched(decisionLog={"append": [{"why": "because"}]})[1]
    with report.shows("patch.artifacts"):
        assert patched(artifacts={"append": ["a.md", "a.md"]})[1].count("a.md") == 1
    with report.shows("patch.node"):
        assert "currentNodeId: second" in patched(currentNodeId={"set": "second"})[1]
    with report.shows("patch.updated"):
        assert "2026-01-03" in patched(updatedAt={"set": "2026-01-03T00:00:00Z"})[1]
    with report.shows("patch.broken", "error.frontmatter"):
        runtime.call("fs.write", path=path, content="---\na: [1\n---\n")
        broken = runtime.call("fs.apply_patch", path=path, patch=_patch_of(currentNodeId={"set": "x"}))
        assert _code(broken) == "E_INVALID_FRONTMATTER"
    with report.shows("patch.match"):
        runtime.call("fs.write", path=path, content=WORKFLOW)
        stale = {**_patch_of(currentNodeId={"set": "x"}), "ifMatchSha256": "0" * 64}
        assert _code(runtime.call("fs.apply_patch", path=path, patch=stale)) == "E_PRECONDITION_FAILED"


def _log(report: Report, runtime: Runtime) -> None:
    runtime.call("fs.write", path="@project/secretive.txt", content="the words of the file")
    runtime.call("fs.read", path="@foo/rejected.txt")
    raw = runtime.call("fs.read", path="@state/logs/execution.jsonl")
    lines = [json.loads(one) for one in raw.get("content", raw.get("contentPreview", "")).splitlines()]
    with report.shows("log.place"):
        assert [one["toolName"] for one in lines][-2:] == ["fs.write", "fs.read"], raw
    with report.shows("log.shape"):
        keys = {"ts", "kind", "toolCallId", "toolName", "agentId", "input", "output", "durationMs"}
        assert lines
        assert all(one.keys() == keys and one["kind"] == "tool.exec" for one in lines)
        assert lines[0]["agentId"] == runtime.agent
    with report.shows("log.rejected"):
        assert "@foo/rejected.txt" in json.dumps(lines[-1]), lines[-1:]
        assert lines[-1]["output"]["error"]["code"] == "E_SANDBOX_VIOLATION"
    with report.shows("log.contents"):
        assert lines
        assert "the words of the file" not in json.dumps(lines)


def _packages(report: Report, stage: Stage) -> None:
    space = stage.space()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("package.json", json.dumps({"name": "demo", "version": "1.0.0"}))
        files.writestr("agents/planner.yaml", AGENT)
        files.writestr("workflow.md", WORKFLOW)
        files.writestr("docs/guide.md", "# Guide\n")
        files.writestr("workflow.graph.json", json.dumps(GRAPH))
        files.writestr("workflow.schema.json", json.dumps(SCHEMA))
    with report.shows("package.install"):
        headers = {**space.headers, "Content-Type": "application/zip"}
        address = f"/workspaces/{space.id}/packages"
        installed = space.http.post(address, content=archive.getvalue(), headers=headers)
        assert installed.status_code == 201, installed.text
    runtime = Runtime(stage, space)
    with report.shows("mount.pkg"):
        assert runtime.call("fs.read", path="@pkg/docs/guide.md")["content"] == "# Guide\n"
        assert _code(runtime.call("fs.write", path="@pkg/docs/guide.md", content="x")) == "E_SANDBOX_VIOLATION"
    with report.shows("package.agents"):
        names = [one["name"] for one in space.get("/agents").json()["items"]]
        assert any("planner" in name for name in names), names
    with report.shows("run.init"):
        runtime.session = space.session(runtime.agent, package="demo")
        assert runtime.call("fs.read", path="@state/workflow.md")["content"] == WORKFLOW
    document = "@state/workflow.md"
    with report.shows("run.schema", "error.schema"):
        wrong = runtime.call("fs.apply_patch", path=document, patch=_patch_of(currentNodeId={"set": 7}))
        assert _code(wrong) == "E_SCHEMA_VALIDATION"
        wrong = runtime.call("fs.apply_patch", path=document, patch=_patch_of(variables={"set": {"a": "no number"}}))
        assert _code(wrong) == "E_SCHEMA_VALIDATION"
        wrong = runtime.call("fs.write", path=document, content="---\nstepsCompleted: [start]\n---\n")
        assert _code(wrong) == "E_SCHEMA_VALIDATION"
    with report.shows("run.guard", "error.transition"):
        for unknown in ("nowhere", "review"):
            refused = runtime.call("fs.apply_patch", path=document, patch=_patch_of(currentNodeId={"set": unknown}))
            assert _code(refused) == "E_INVALID_TRANSITION"
            assert refused["error"]["details"]["allowedNext"] == ["plan"]
        refused = runtime.call("fs.write", path=document, content=WORKFLOW.replace("[start]", "[]"))
        assert _code(refused) == "E_INVALID_TRANSITION"
        assert runtime.call("fs.read", path=document)["content"] == WORKFLOW
        for step in ("plan", "review"):
            taken = runtime.call("fs.apply_patch", path=document, patch=_patch_of(currentNodeId={"set": step}))
            assert taken["ok"] is True, taken


GRAPH = {
    "nodes": [{"id": "start"}, {"id": "plan"}, {"id": "review"}],
    "edges": [{"from": "start", "to": "plan"}, {"from": "plan", "to": "review"}],
}
SCHEMA = {
    "type": "object",
    "properties": {"variables": {"type": "object", "additionalProperties": {"type": "integer"}}},
    "required": ["currentNodeId"],
}
