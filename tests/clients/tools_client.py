"""A client of the Tools API: sends every example of the page, then checks its documented behaviour, in order."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2

import toolcrib
from tests.clients.client_server import PASSWORD, Space, Stage
from tests.clients.criteria import Report
from tests.clients.tools_examples import Page, play_examples, play_tables
from tests.clients.tools_people import play_plans, play_questions, play_virtual
from tests.wait_until import PATIENCE


def play(stage: Stage) -> Report:
    """Runs every criterion of the table."""
    report = Report("tools_api")
    page = play_examples(report, stage)
    play_tables(report, page)
    space = stage.space()
    _envelope(report, stage, space)
    _sync(report, stage.space())
    _ls(report, stage.space())
    _read_and_write(report, stage.space())
    _folders(report, stage.space())
    _edit(report, stage.space())
    _search(report, stage.space())
    _cat_and_find(report, stage.space())
    play_questions(report, space)
    play_plans(report, Page(stage.space()))
    _paths(report, stage.space())
    _people(report, stage, space)
    play_virtual(report, stage)
    return report


def _envelope(report: Report, stage: Stage, space: Space) -> None:
    with report.shows("envelope.ok"):
        got = space.call("ls").json()
        assert (got["success"], got["error"]) == (True, None)
    with report.shows("envelope.error", "status.404"):
        answer = space.call("read", path="/none")
        assert (answer.status_code, answer.json()["success"], answer.json()["code"]) == (404, False, "NOT_FOUND")
    with report.shows("status.400"):
        answer = space.call("read", path=7)
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    with report.shows("status.401"):
        answer = space.http.post(f"/workspaces/{space.id}/tools", json={"tool": "ls", "args": {}})
        assert (answer.status_code, answer.json()["code"]) == (401, "INVALID_TOKEN")
    with report.shows("status.403", "auth.members"):
        stranger = Space(space.http, space.origin, space.id, stage.person()[1], space.directory)
        assert (stranger.call("ls").status_code, stranger.call("ls").json()["code"]) == (403, "FORBIDDEN")
    with report.shows("status.500"):
        described = json.dumps(space.http.get("/openapi.json").json())
        assert "INTERNAL_ERROR" in described


def _sync(report: Report, space: Space) -> None:
    space.result("write", path="/known.md", content="known\n")
    for name in ("a.md", "b.md", "c.md", "d.md"):
        space.put_file(f"/disk/{name}", f"{name} from disk\n")
    with report.shows("sync.true", "sync.false", "sync.discovery"):
        for tool, args in (("ls", {"recursive": True}), ("find", {"name": "*.md"}), ("glob", {"pattern": "*.md"})):
            result = space.result(tool, **args)
            synced = {one["path"]: one["synced"] for one in result.get("entries", result.get("matches"))}
            assert (synced["/known.md"], synced["/disk/a.md"]) == (True, False), tool
        [known, disk] = [one for one in space.result("ls", recursive=True)["entries"] if one["name"] in KNOWN]
        ids = {known["name"]: known["id"], disk["name"]: disk["id"]}
        assert ids["known.md"] is not None
        assert ids["a.md"] is None
    with report.shows("sync.access"):
        assert space.result("read", path="/disk/a.md")["synced"] is False
        assert space.result("cat", paths=["/disk/a.md"])["files"][0]["synced"] is False
        assert space.result("file_info", path="/disk/a.md")["synced"] is False
        assert space.result("read_multiple_files", paths=["/disk/a.md"])["files"][0]["synced"] is False
    with report.shows("sync.import"):
        space.result("edit", path="/disk/b.md", old_string="from", new_string="not from")
        space.result("mv", source="/disk/c.md", destination="/disk/moved.md")
        assert space.result("read", path="/disk/b.md")["synced"] is True
        assert space.result("read", path="/disk/moved.md")["synced"] is True
    with report.shows("sync.rm"):
        assert space.result("rm", path="/disk/d.md")["file_id"] is None


KNOWN = ("known.md", "a.md")


def _ls(report: Report, space: Space) -> None:
    for number in range(60):
        space.put_file(f"/many/{number:02}.txt", "x")
    space.result("write", path="/many/zz/deep.txt", content="deep")
    with report.shows("ls.flat", "ls.default", "ls.sorted"):
        entries = space.result("ls", path="/many")["entries"]
        assert len(entries) == 50
        assert entries[0]["path"] == "/many/zz"
        paths = [one["path"] for one in entries[1:]]
        assert paths == sorted(paths)
        assert "/many/zz/deep.txt" not in paths
    with report.shows("ls.unlimited", "ls.recursive"):
        entries = space.result("ls", path="/many", recursive=True, limit=0)["entries"]
        assert len(entries) == 62
    with report.shows("ls.file"):
        assert space.call("ls", path="/many/00.txt").status_code == 400
    with report.shows("ls.root"):
        assert space.result("ls")["path"] == "/"


def _read_and_write(report: Report, space: Space) -> None:
    text = "".join(f"line {number}\n" for number in range(700))
    with report.shows("write.create", "write.folders"):
        first = space.result("write", path="/a/b/c.txt", content=text)
        assert (space.directory / "a/b/c.txt").read_text() == text
    with report.shows("read.default", "read.hash"):
        got = space.result("read", path="/a/b/c.txt")
        assert (got["total_lines"], got["truncated"], got["limit"]) == (700, True, 500)
        assert got["content"].startswith("line 0\n")
        assert "line 499" in got["content"]
        assert "line 500" not in got["content"]
        assert got["hash"] == hashlib.sha256(text.encode()).hexdigest()
    with report.shows("read.positive"):
        assert space.result("read", path="/a/b/c.txt", offset=100, limit=1)["content"].strip() == "line 100"
    with report.shows("read.negative"):
        got = space.result("read", path="/a/b/c.txt", offset=-100)
        assert got["content"].startswith("line 600\n")
        assert "line 699" in got["content"]
    with report.shows("write.update", "read.latest", "write.as-is"):
        second = space.result("write", path="/a/b/c.txt", content="  new \t\n", overwrite=True)
        assert second["file_id"] == first["file_id"]
        assert second["version_id"] != first["version_id"]
        assert space.result("read", path="/a/b/c.txt")["content"] == "  new \t\n"
    with report.shows("read.object", "write.any-json"):
        for number, value in enumerate(({"a": [1]}, [1, 2], 7, "text")):
            space.result("write", path=f"/json/{number}", content=value)
            assert space.result("read", path=f"/json/{number}")["content"] == value
    with report.shows("read.folder"):
        assert space.call("read", path="/a").status_code == 400
    with report.shows("write.types"):
        for kind in ("document", "canvas", "chat", "whiteboard", "agent", "skill"):
            made = space.call("write", path=f"/types/{kind}", content="x", file_type=kind)
            assert made.status_code == 200, f"{kind}: {made.text}"
            assert space.result("file_info", path=f"/types/{kind}")["file_type"] == kind
        folder = space.call("write", path="/types/folder", content="", file_type="folder")
        assert folder.status_code == 200, f"folder: {folder.text}"
        assert space.result("file_info", path="/types/folder")["file_type"] == "folder"
    with report.shows("write.on-folder"):
        assert space.call("write", path="/a", content="text", overwrite=True).status_code == 400
    with report.shows("touch.create", "touch.parents", "touch.update"):
        made = space.result("touch", path="/t/new.txt")
        before = space.result("file_info", path="/t/new.txt")
        assert (before["size"], before["file_type"]) == (0, "document")
        assert space.result("touch", path="/t/new.txt")["file_id"] == made["file_id"]
        after = space.result("file_info", path="/t/new.txt")
        assert after["updated_at"] > before["updated_at"]
        assert after["hash"] == before["hash"]


def _folders(report: Report, space: Space) -> None:
    space.result("write", path="/file.txt", content="x")
    with report.shows("mkdir.recursive", "mkdir.again"):
        made = space.result("mkdir", path="/m/n/o")
        assert space.result("mkdir", path="/m/n/o")["file_id"] == made["file_id"]
        assert [one["path"] for one in space.result("ls", path="/m", recursive=True)["entries"]] == ["/m/n", "/m/n/o"]
    with report.shows("mkdir.conflict"):
        assert space.call("mkdir", path="/file.txt/below").status_code == 409
        assert space.call("mkdir", path="/file.txt").status_code == 409
    with report.shows("rm.children"):
        assert space.call("rm", path="/m").status_code == 409
    with report.shows("rm.missing"):
        assert space.call("rm", path="/none").status_code == 404
    with report.shows("rm.soft", "rm.restore"):
        gone = space.result("rm", path="/file.txt")
        assert not (space.directory / "file.txt").exists()
        assert "/file.txt" not in [one["path"] for one in space.result("ls")["entries"]]
        restored = space.post(f"/files/{gone['file_id']}/restore", {})
        assert restored.status_code == 200, restored.text
        assert space.result("read", path="/file.txt")["content"] == "x"
    with report.shows("mv.rename"):
        moved = space.result("mv", source="/file.txt", destination="/renamed.txt")
        assert moved == {"from_path": "/file.txt", "to_path": "/renamed.txt"}
    with report.shows("mv.into"):
        assert space.result("mv", source="/renamed.txt", destination="/m/")["to_path"] == "/m/renamed.txt"
    with report.shows("mv.existing"):
        assert space.result("mv", source="/m/renamed.txt", destination="/m/n")["to_path"] == "/m/n/renamed.txt"
    with report.shows("mv.missing"):
        assert space.call("mv", source="/none", destination="/x").status_code == 404
    with report.shows("mv.conflict"):
        space.result("write", path="/there.txt", content="y")
        assert space.call("mv", source="/m/n/renamed.txt", destination="/there.txt").status_code == 409
    with report.shows("mv.parent"):
        assert space.call("mv", source="/there.txt", destination="/nowhere/at/all.txt").status_code in (400, 404)


def _edit(report: Report, space: Space) -> None:
    made = space.result("write", path="/e.txt", content="one\ntwo\ntwo\n")
    with report.shows("edit.missing"):
        assert space.call("edit", path="/e.txt", old_string="three", new_string="x").status_code == 400
    with report.shows("edit.twice"):
        assert space.call("edit", path="/e.txt", old_string="two", new_string="x").status_code == 400
    with report.shows("edit.empty"):
        assert space.call("edit", path="/e.txt", old_string="", new_string="x").status_code == 400
    with report.shows("edit.version"):
        edited = space.result("edit", path="/e.txt", old_string="one", new_string="1", last_read_hash=made["hash"])
        assert edited["version_id"] != made["version_id"]
        assert space.result("read", path="/e.txt")["content"] == "1\ntwo\ntwo\n"
    with report.shows("edit.stale"):
        stale = space.call("edit", path="/e.txt", old_string="1", new_string="2", last_read_hash=made["hash"])
        assert stale.status_code == 409
    with report.shows("edit.insert"):
        space.result("edit", path="/e.txt", insert_line=1, insert_content="between")
        assert space.result("read", path="/e.txt")["content"] == "1\nbetween\ntwo\ntwo\n"


def _search(report: Report, space: Space) -> None:
    space.result("write", path="/src/main.rs", content="one\nfn main() {\n  // TODO\n}\nlast\n")
    space.result("write", path="/docs/guide.md", content="Todo here\n" * 60)
    space.result("write", path="/top.rs", content="fn top() {}\n")
    space.result("write", path="/src/deep/test_a.txt", content="x\n")

    def paths(tool: str, **args: Any) -> set[str]:
        return {one["path"] for one in space.result(tool, **args)["matches"]}

    with report.shows("grep.posix", "grep.lines"):
        [match] = space.result("grep", pattern=r"fn main\(\)[[:space:]]*\{")["matches"]
        assert (match["path"], match["line_number"], match["line_text"]) == ("/src/main.rs", 2, "fn main() {")
    with report.shows("grep.case"):
        assert paths("grep", pattern="todo", limit=0) == {"/src/main.rs", "/docs/guide.md"}
        assert paths("grep", pattern="TODO", case_sensitive=True) == {"/src/main.rs"}
    with report.shows("grep.limit"):
        assert len(space.result("grep", pattern="todo")["matches"]) == 50
        assert len(space.result("grep", pattern="todo", limit=0)["matches"]) == 61
    with report.shows("grep.fuzzy"):
        assert paths("grep", pattern="fn ", path_pattern="SRC") == {"/src/main.rs"}
        assert paths("grep", pattern="fn ", path_pattern="*.rs") == {"/src/main.rs", "/top.rs"}
    with report.shows("grep.like"):
        assert paths("grep", pattern="fn ", path_pattern="%.rs") == {"/src/main.rs", "/top.rs"}
    with report.shows("grep.context"):
        [match] = space.result("grep", pattern="TODO", case_sensitive=True, before_context=1, after_context=1)[
            "matches"
        ]
        assert (match["before_context"], match["after_context"]) == (["fn main() {"], ["}"])
        [match] = space.result("grep", pattern="TODO", case_sensitive=True, context=2)["matches"]
        assert match["before_context"] == ["one", "fn main() {"]
    with report.shows("glob.syntax", "glob.paths"):
        assert paths("glob", pattern="/src/**/*.rs") == {"/src/main.rs"}
        assert paths("glob", pattern="**/*.md") == {"/docs/guide.md"}
        assert paths("glob", pattern="to?.rs") == {"/top.rs"}
        assert paths("glob", pattern="test_*") == {"/src/deep/test_a.txt"}
    with report.shows("glob.depth"):
        assert paths("glob", pattern="*.rs") == {"/src/main.rs", "/top.rs"}
    with report.shows("glob.dots"):
        assert space.call("glob", pattern="../*").status_code == 400
    with report.shows("glob.several"):
        assert paths("glob", patterns=["*.md", "*.rs"]) == {"/docs/guide.md", "/src/main.rs", "/top.rs"}


def _cat_and_find(report: Report, space: Space) -> None:
    space.result("write", path="/a.txt", content="a\tb\n\n\n\nend \n")
    space.result("write", path="/b.txt", content="".join(f"b{number}\n" for number in range(10)))
    with report.shows("cat.joined"):
        both = space.result("cat", paths=["/a.txt", "/b.txt"])["content"]
        assert both.index("end") < both.index("b0")
    with report.shows("cat.special"):
        got = space.result("cat", paths=["/a.txt"], show_ends=True, show_tabs=True)["content"]
        assert "a^Ib$" in got
        assert "end $" in got
    with report.shows("cat.numbers"):
        got = space.result("cat", paths=["/b.txt"], offset=5, limit=2, number_lines=True)["content"]
        assert [line.split() for line in got.splitlines()] == [["6", "b5"], ["7", "b6"]]
    with report.shows("cat.negative"):
        assert space.result("cat", paths=["/b.txt"], offset=-2)["content"].split() == ["b8", "b9"]
    with report.shows("cat.squeeze"):
        assert "\n\n\n" not in space.result("cat", paths=["/a.txt"], squeeze_blank=True)["content"]
    with report.shows("cat.headers"):
        assert "==> /b.txt <==" in space.result("cat", paths=["/a.txt", "/b.txt"], show_headers=True)["content"]
    with report.shows("cat.limit"):
        assert space.call("cat", paths=["/a.txt"] * 21).status_code == 400
    with report.shows("cat.partial"):
        files = space.result("cat", paths=["/a.txt", "/none"])["files"]
        assert files[1]["error"]
    with report.shows("info.lines", "info.size"):
        got = space.result("file_info", path="/b.txt")
        assert (got["line_count"], got["size"]) == (10, 30)

    def found(**args: Any) -> set[str]:
        return {one["path"] for one in space.result("find", **args)["matches"]}

    space.result("write", path="/deep/c.txt", content="c" * 100)
    with report.shows("find.wildcards"):
        assert found(name="?.txt") == {"/a.txt", "/b.txt", "/deep/c.txt"}
        assert found(name="[ab].*") == {"/a.txt", "/b.txt"}
    with report.shows("find.type"):
        assert found(file_type="folder") == {"/deep"}
    with report.shows("find.flat"):
        assert "/deep/c.txt" not in found(recursive=False)
    with report.shows("find.size"):
        assert found(min_size=50) == {"/deep/c.txt"}
        assert "/deep/c.txt" not in found(max_size=50, file_type="document")
    with report.shows("batch.partial", "batch.truncated", "batch.limit"):
        good, bad = space.result("read_multiple_files", paths=["/b.txt", "/none"], limit=3)["files"]
        assert (good["success"], good["truncated"], good["total_lines"]) == (True, True, 10)
        assert (bad["success"], bad["content"], bad["truncated"]) == (False, None, None)
    with report.shows("batch.most"):
        assert space.call("read_multiple_files", paths=["/a.txt"] * 51).status_code == 400


def _paths(report: Report, space: Space) -> None:
    space.result("write", path="/folder/file", content="x")
    for criterion, path in (
        ("path.trim", "  /folder/file  "),
        ("path.slashes", "//folder///file"),
        ("path.dots", "/folder/./sub/../file"),
        ("path.form", "folder/file/"),
    ):
        with report.shows(criterion):
            assert space.result("read", path=path)["path"] == "/folder/file"
    with report.shows("path.above"):
        assert space.call("read", path="/../folder/file").status_code == 400


def _people(report: Report, stage: Stage, space: Space) -> None:
    call = {"tool": "ls", "args": {}}
    address = f"{stage.api}/workspaces/{space.id}/tools"
    with report.shows("auth.cookie"):
        own = {"Origin": stage.origin, "Cookie": f"access_token={space.token}"}
        answer = httpx2.post(address, json=call, headers=own, trust_env=False)
        assert answer.status_code == 200, answer.text
    with report.shows("auth.header"):
        both = {**space.headers, "Origin": stage.origin, "Cookie": "access_token=an-old-one"}
        answer = httpx2.post(address, json=call, headers=both, trust_env=False)
        assert answer.status_code == 200, answer.text
    with report.shows("auth.minutes"):
        part = space.token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        assert claims["exp"] - claims["iat"] == 15 * 60
    with report.shows("auth.secret"):
        command = [str(Path(sys.executable).with_name("toolcrib")), "serve", "--port", "1"]
        environment = {
            "PATH": os.environ["PATH"],
            "TOOLCRIB_JWT_SECRET": "short",
            "TOOLCRIB_AUDIT_SEAL_KEY": "k" * 9 + "abcdefghijklmnopqrstuvwxyz0987",
            "TOOLCRIB_DATABASE_URL": "postgresql://toolcrib_app@127.0.0.1:1/none",
        }
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert ended.returncode != 0
        assert "TOOLCRIB_JWT_SECRET" in ended.stderr
    with report.shows("auth.invite"):
        invited = space.post("/invitations", {"email": "newcomer@example.com", "role": "member"})
        assert invited.status_code == 201, invited.text
        taken = {"token": invited.json()["token"], "password": PASSWORD}
        accepted = space.http.post("/auth/invitations/accept", json=taken)
        assert accepted.status_code in (200, 201), accepted.text
        member = Space(space.http, space.origin, space.id, accepted.json()["access_token"], space.directory)
        assert member.call("ls").status_code == 200
    with report.shows("tools.own"):
        assert callable(toolcrib.tool)
