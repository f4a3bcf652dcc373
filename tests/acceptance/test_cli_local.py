"""On a laptop: from an empty directory to an answered prompt, with no setup except a model."""

import json
import re
import shlex
import stat
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.acceptance.local_machine import Laptop, laptop, secrets_of
from tests.fakes import wires
from tests.fakes.model_server import Answer
from tests.fakes.scripted_turns import Scene
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE

HAIKU = "An old silent pond\nA frog jumps into the pond\nSplash! Silence again\n"
WRITES = ("write", {"path": "/haiku.md", "content": HAIKU})
SEASON = {"name": "season", "question": "Which season?", "schema": {"type": "string"}}
ALLOW = "[a]lways in this session: "


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


def test_an_empty_directory_becomes_a_chat_with_approval_and_undo_within_a_minute(own: Laptop) -> None:
    project = own.project("first")
    own.model.script = [says("I will write a haiku.", WRITES), says("I wrote it to haiku.md.")]
    began = time.monotonic()

    with own.terminal("chat", "--plain", "--trust", "guided", at=project) as chat:
        chat.until("> ")
        first_prompt = time.monotonic() - began
        chat.type("Write a haiku")
        asked = chat.until(ALLOW)
        not_yet = (project / "haiku.md").exists()
        chat.type("y")
        answered = chat.until("\n> ")
        written = (project / "haiku.md").read_text()
        chat.type("/undo")
        undone = chat.until("\n> ")
        status = chat.end()
    took = time.monotonic() - began

    assert "Creating a database." in chat.shown
    assert "I will write a haiku." in asked
    assert "+A frog jumps into the pond" in asked
    assert not not_yet
    assert "● write /haiku.md" in answered
    assert "I wrote it to haiku.md." in answered
    assert written == HAIKU
    assert "removed: /haiku.md" in undone
    assert list(project.iterdir()) == []
    assert status == 0
    assert took < 60, f"{took:.1f} s, the first prompt after {first_prompt:.1f} s"
    # The last user has exited, and the database has stopped.
    assert not (own.data / "postgres" / "postmaster.pid").exists()


@pytest.mark.long
def test_the_shell_commands_work_on_a_directory(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("Now.", WRITES), says("Done.")]
    with own.terminal("chat", "--plain", "--trust", "autonomous", at=project) as chat:
        # The chat serves the directory to the commands below.
        chat.until("> ")
        answer = own.says("run", "--trust", "autonomous", "--quiet", "Write a haiku", at=project)
        log = own.says("log", "--diff", at=project)
        planned = json.loads(own.says("undo", "--dry-run", "--json", at=project))
        still_there = (project / "haiku.md").exists()
        undone = own.says("undo", at=project)
        gone = not (project / "haiku.md").exists()
        redone = own.says("redo", at=project)
        session = json.loads(own.says("sessions", "--json", at=project))[0]["id"]
        of_session = own.says("undo", "--dry-run", "--session", session[:18], at=project)
        explain = ("tool", "bash", "--command", "true", "--explain")
        in_session = json.loads(own.says(*explain, "--session", session[:18], "--json", at=project))
        as_agent = own.says(
            "tool", "read", "--path", "/.env", "--explain", "--agent", "assistant", at=project, status=1
        )
        not_asked = own.says("tool", "ls", "--agent", "assistant", at=project, status=2)
        nothing = own.says("redo", at=project, status=2)
        made = own.says("tool", "write", "--path", "/a.txt", "--content", "one\n", at=project)
        audit = json.loads(own.says("audit", "verify", "--json", at=project))
        refused = own.says("tool", "write", "--path", "/a.txt", "--content", "two\n", at=project, status=1)
        found = json.loads(own.says("tool", "grep", "--json", "--json-args", '{"pattern": "frog"}', at=project))
        entries = [json.loads(line) for line in own.says("log", "--json", at=project).splitlines()]
        chat.end()

    assert answer == "Now.\nDone.\n"
    assert "write /haiku.md" in log
    assert "by assistant" in log
    assert "+Splash! Silence again" in log
    assert [change["path"] for change in planned["changes"]] == ["/haiku.md"]
    assert still_there
    assert "removed: /haiku.md" in undone
    assert gone
    assert "restored: /haiku.md" in redone
    assert "would be removed: /haiku.md" in of_session
    assert (in_session["action"], in_session["agent"]) == ("allow", "assistant")
    assert in_session["rule"].startswith("trust.autonomous.")
    assert as_agent.startswith("deny: ")
    assert "Rule: protected-name:.env" in as_agent
    assert "--agent: Only with --explain" in not_asked
    assert "Nothing to redo" in nothing
    assert (project / "haiku.md").read_text() == HAIKU
    assert json.loads(made)["path"] == "/a.txt"
    assert audit["whole"]
    assert audit["sealed_records"] + audit["unsealed_records"] > 3
    assert "overwrite" in refused
    assert [match["path"] for match in found["matches"]] == ["/haiku.md"]
    # The second redo is a call too: the server decides that there is nothing to redo.
    assert [entry["tool"] for entry in entries] == ["write", "undo", "undo", "undo", "write", "write"]
    assert max(map(len, log.splitlines())) <= 120


@pytest.mark.long
def test_the_shell_commands_set_up_a_directory(own: Laptop) -> None:
    project = own.project()
    definition = project / "reviewer.yaml"
    definition.write_text("provider: openai-compatible\nmodel: gpt-fake\ntrust: supervised\n")
    own.model.script = [says("Hello.")]
    with own.terminal("chat", "--plain", at=project) as chat:
        chat.until("> ")
        own.says("agents", "add", "reviewer", "reviewer.yaml", at=project)
        (project / "wrong.yaml").write_text("tool_permissions: {bsah: {allowed: true}}\n")
        checked = own.says("agents", "check", "reviewer.yaml", at=project)
        mistaken = own.says("agents", "check", "wrong.yaml", at=project, status=1)
        own.says("agents", "default", "reviewer", at=project)
        agents = own.says("agents", at=project)
        wrong = own.says("agents", "show", "nobody", at=project, status=2)
        no_skills = own.says("agents", "skills", at=project)
        for name, head in (("good", "name: good\ndescription: Does good."), ("bad", "name: other")):
            (project / ".agents" / "skills" / name).mkdir(parents=True)
            (project / ".agents" / "skills" / name / "SKILL.md").write_text(f"---\n{head}\n---\n")
        skills = json.loads(own.says("agents", "skills", "--json", at=project))
        models = own.says("models", at=project)
        own.says("models", "use", "openai-compatible/gpt-4o", "--agent", "reviewer", at=project)
        shown = own.says("agents", "show", "reviewer", at=project)
        secret = own.says("key", "create", "ci", at=project).split()[-1]
        keys = json.loads(own.says("key", "--json", at=project))
        own.says("key", "revoke", keys[0]["id"][-8:], at=project)
        none_left = own.says("key", at=project)
        person = json.loads(own.says("user", "--json", at=project))
        here = own.says("workspace", at=project)
        own.says("run", "Say hello", at=project)
        sessions = own.says("sessions", at=project)
        conversation = own.says("sessions", "last", at=project)
        [latest, *_] = json.loads(own.says("sessions", "--json", at=project))
        # The first half differs between sessions: it contains the time in milliseconds.
        by_start = own.says("sessions", latest["id"][:18], at=project)
        unknown = own.says("sessions", "0000", at=project, status=2)
        no_provider = own.says("models", "use", "nobody/gpt", "--agent", "reviewer", at=project, status=2)
        chat.end()

    assert checked == "reviewer.yaml: no mistakes found.\n"
    assert "Unknown tool `bsah`. Did you mean `bash`?" in mistaken
    assert "*  reviewer" in agents
    assert "There is no agent 'nobody'. Agents: assistant, reviewer." in wrong
    assert "No skills." in no_skills
    assert {one["name"]: one["flaw"] for one in skills}.items() >= {("good", None)}
    assert [one["flaw"] for one in skills if one["name"] == "bad"] == [
        "`name` is `other` but the folder is `bad`. Give both the same name."
    ]
    assert "openai-compatible/gpt-fake" in models
    assert "model: gpt-4o" in shown
    assert "trust: supervised" in shown
    assert secret.startswith("tck_")
    assert secret not in json.dumps(keys)
    assert none_left.startswith("You have no API keys.")
    assert "@" in person["email"]
    assert f"* {'':0}" in here
    assert project.name in here
    assert "Say hello" in sessions
    assert conversation.startswith("> Say hello\n\nHello.")
    assert by_start == conversation
    assert "There is no session '0000'." in unknown
    assert "There is no provider 'nobody'. Providers: anthropic, copilot, gemini, openai," in no_provider


def test_without_a_terminal_a_call_that_needs_approval_is_denied_and_every_event_is_a_line(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("", WRITES), says("Then not.")]

    lines = own.says("run", "--trust", "guided", "--json", "Write a haiku", at=project, status=6).splitlines()

    # Only events and the result, except for notices of the very first start.
    *events, result = [json.loads(line) for line in lines if not line.startswith("Creating a database")]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "chat:resumed"
    assert "chat:tool-confirm" in kinds
    assert events[-1]["payload"]["endReason"] == "done"
    assert (result["type"], result["exit_code"]) == ("result", 6)
    [denied] = [event["payload"] for event in events if event["type"] == "chat:pause-ended"]
    assert (denied["approved"], denied["reason"]) == (False, "there is no terminal to ask at")
    assert not (project / "haiku.md").exists()


@pytest.mark.long
def test_the_exit_code_of_a_run_tells_how_it_ended(own: Laptop) -> None:
    project = own.project()
    protected = ("write", {"path": "/.env", "content": "A=1\n"})
    with own.terminal("chat", "--plain", at=project) as chat:
        # The chat serves the directory to the commands below.
        chat.until("> ")
        own.model.script = [says("Hello.")]
        done = own.run("run", "Say hello", at=project).status
        own.model.script = [says("", WRITES), says("Then not.")]
        rejected = own.run("run", "--trust", "guided", "Write a haiku", at=project).status
        own.model.script = [says("", protected), says("Then not.")]
        denied = own.run("run", "--trust", "autonomous", "Write it", at=project).status
        own.model.script = [says("", ("read", {"path": "/none.md"})), says("There is none.")]
        only_failed = own.run("run", "--trust", "autonomous", "Read it", at=project).status
        own.model.script = [Answer((b'{"error": {"message": "No such model"}}',), status=404)]
        failed = own.run("run", "Say hello", at=project).status
        own.model.script = [says("", ("ask_user", {"questions": [SEASON]})), says("Never.")]
        asked = own.run("run", "Ask me", at=project).status
        not_started = own.run("run", " ", at=project).status
        chat.end()

    assert (done, rejected, denied, only_failed, failed, asked, not_started) == (0, 6, 6, 0, 1, 5, 2)


def test_a_new_directory_has_an_agent_that_asks_only_about_what_cannot_be_undone(own: Laptop) -> None:
    project = own.project()
    hidden = "mkdir .githooks; echo echo hi > .githooks/pre-commit; echo a > a.txt"
    own.model.script = [
        says("", WRITES),
        says("", ("bash", {"command": "wc -l < haiku.md > lines.txt"})),
        says("", ("bash", {"command": hidden})),
        says("Done."),
    ]

    with own.terminal("run", "Write a haiku", at=project) as run:
        asked = run.until("(a reason may follow): ")
        unchanged = sorted(path.name for path in project.iterdir())
        run.type("y")
        run.until("Done.")
        assert run.process.wait(60) == 0

    assert unchanged == ["haiku.md", "lines.txt"]
    assert "+echo hi" in asked
    assert "pre-commit" in asked
    assert (project / ".githooks" / "pre-commit").exists()
    assert "trust: review" in own.says("agents", "show", "assistant", at=project)


@pytest.mark.long
def test_killing_one_process_leaves_the_other_working_and_the_next_start_resumes(own: Laptop) -> None:
    killed, other = own.project(), own.project()
    cut = Answer(tuple(wires.chat_completions(Scene(text="I begin"), "gpt-4o"))[:2], hang=True)
    with own.terminal("chat", "--plain", "--trust", "guided", at=other) as beside:
        beside.until("> ")
        own.model.script = [cut]
        with own.terminal("chat", "--plain", "--trust", "guided", at=killed) as chat:
            chat.until("> ")
            chat.type("Write a haiku")
            chat.until("I beg")
            chat.kill()
        own.model.script = [says("Still here.")]
        beside.type("Are you there?")
        beside.until("Still here.")
        beside.until("\n> ")
        own.model.script = [says("", WRITES), says("Written.")]
        with own.terminal("chat", "--plain", "--resume", "last", at=killed) as again:
            # The interrupted run resumes without a command.
            again.until(ALLOW)
            again.type("y")
            again.until("Written.")
            again.until("\n> ")
            assert again.end() == 0
        assert beside.end() == 0

    assert (killed / "haiku.md").read_text() == HAIKU


@pytest.mark.long
def test_a_second_terminal_shares_the_directory_and_takes_over_when_the_first_ends(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("", WRITES), says("Written."), says("I am still with you.")]
    with own.terminal("chat", "--plain", "--trust", "guided", at=project) as first:
        first.until("> ")
        with own.terminal("chat", "--plain", "--trust", "guided", at=project) as second:
            second.until("> ")
            first.type("Write a haiku")
            first.until(ALLOW)
            waiting = own.says("approve", at=project)
            allowed = own.says("approve", waiting.splitlines()[1].split()[0], "--yes", at=project)
            first.type("y")
            first.until("Written.")
            first.until("\n> ")
            assert first.end() == 0
            second.type("Are you there?")
            second.until("has stopped. Continuing in this terminal.")
            second.until("I am still with you.")
            second.until("\n> ")
            assert second.end() == 0

    assert "created /haiku.md" in waiting
    assert "Approved." in allowed
    # The first one approved it too late; the response named the earlier decision.
    assert "+A frog" in first.shown
    assert (project / "haiku.md").read_text() == HAIKU


@pytest.mark.long
def test_a_run_resumes_here_when_the_terminal_that_served_it_exits(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("", WRITES), says("Written.")]
    with own.terminal("chat", "--plain", at=project) as first:
        first.until("> ")
        with own.terminal("run", "--trust", "guided", "Write a haiku", at=project) as second:
            second.until(ALLOW)
            assert first.end() == 0
            second.type("y")
            second.until("Continuing in this terminal.")
            second.until(ALLOW)
            second.type("y")
            second.until("Written.")
            assert second.process.wait(60) == 0

    assert (project / "haiku.md").read_text() == HAIKU


@pytest.mark.long
def test_a_plan_is_shown_before_it_is_accepted_and_a_run_can_be_stopped(own: Laptop) -> None:
    project = own.project()
    review = {
        "name": "approval",
        "question": "Shall I build /plans/calm-blue-sea.plan?",
        "schema": {"type": "string"},
        "buttons": [{"label": "Accept", "value": "Accept"}, {"label": "Reject", "value": "Reject"}],
    }
    cut = Answer(tuple(wires.chat_completions(Scene(text="I begin"), "gpt-4o"))[:2], hang=True)
    plan = {"title": "Sea", "content": "1. Look at the sea\n", "path": "/plans/calm-blue-sea.plan"}
    own.model.script = [
        says("", ("plan_write", plan)),
        says("", ("ask_user", {"questions": [review]})),
        says("", ("exit_plan_mode", {"plan_file_path": "/plans/calm-blue-sea.plan"})),
        says("Now I build."),
        cut,
    ]
    with own.terminal("chat", "--plain", "--plan", at=project) as chat:
        chat.until("> ")
        chat.type("Plan it")
        shown = chat.until("approval: ")
        chat.type("1")
        accepted = chat.until("\n> ")
        chat.type("Go on")
        chat.until("I beg")
        chat.interrupt()
        stopped = chat.until("\n> ")
        assert chat.end() == 0

    assert "  1. Look at the sea" in shown
    assert "● exit_plan_mode /plans/calm-blue-sea.plan" in accepted
    assert "Now I build." in accepted
    assert "Cancelled." in stopped


def test_no_secret_is_shown_or_logged_and_only_the_owner_can_read_its_file(own: Laptop) -> None:
    project = own.project()
    own.says("agents", at=project)
    kept = own.data / "secrets.json"
    logs = [path.read_text(errors="replace") for path in own.data.rglob("*.log")]

    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.data.stat().st_mode) == 0o700
    for secret in secrets_of(own):
        assert not any(secret in text for text in [*own.said, *logs])


def test_commits_of_agents_have_the_persons_identity(own: Laptop) -> None:
    project, home = own.project(), own.base / "home"
    config = home / ".gitconfig"
    config.write_text("[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n")
    subprocess.run(["git", "init", "--quiet", project], check=True)
    commits = "git commit -q --allow-empty -m Start && git log --format='%an <%ae>, %cn <%ce>'"
    own.model.script = [says("", ("bash", {"command": commits})), says("Committed.")]
    try:
        said = own.says("run", "--trust", "autonomous", "Commit", at=project)
    finally:
        config.unlink()

    assert "Ada Lovelace <ada@example.com>, Ada Lovelace <ada@example.com>" in said


@pytest.mark.long
def test_subdirectory_of_a_repository_is_the_project_with_the_persons_programs(own: Laptop) -> None:
    project, tools = own.project(), own.base / "home" / ".local" / "bin"
    subprocess.run(["git", "init", "--quiet", "-b", "topic", project], check=True)
    (project / "web" / "src").mkdir(parents=True)
    (project / "AGENTS.md").write_text("Answer in verse.")
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "greet").write_text("#!/bin/sh\necho greetings from $(pwd)\n")
    (tools / "greet").chmod(0o755)
    script = [says("", ("bash", {"command": "greet > greeting.txt; cat greeting.txt"})), says("Done.")]
    path = f"{tools}:/usr/bin:/bin"

    def known() -> int:
        return sum(1 for _ in (own.data / "projects").glob("*"))

    before, own.model.script = known(), list(script)
    said = own.says("run", "--trust", "autonomous", "Go", at=project / "web" / "src", PATH=path)
    prompt = str(own.model.received[-1].body["messages"][0]["content"])
    own.says("agents", at=project)
    found = known()
    own.says("agents", "-C", str(project / "web"), at=project)

    assert (project / "web" / "src" / "greeting.txt").read_text() == f"greetings from {project}/web/src\n"
    assert "greetings from" in said
    assert f"- Directory: {project}/web/src (file tools call it `/web/src`" in prompt
    assert "Answer in verse." in prompt
    assert "No commits yet on topic" in prompt
    assert found == before + 1
    assert known() == before + 2, "a directory that is named is its own project"


def test_the_example_in_the_help_of_tool_works(own: Laptop) -> None:
    project = own.project()
    (project / "src").mkdir()
    (project / "src" / "main.py").write_text("# TODO: all of it\n")
    [example] = re.findall(r"Example: toolcrib (tool .+)", own.says("tool", "--help", at=project))

    found = json.loads(own.says(*shlex.split(example), at=project))

    assert [match["path"] for match in found["matches"]] == ["/src/main.py"]


@pytest.mark.long
def test_the_end_of_a_background_process_breaks_neither_log_nor_undo(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("", WRITES), says("Written.")]
    with own.terminal("chat", "--plain", "--trust", "autonomous", at=project) as chat:
        chat.until("> ")
        chat.type("Write it")
        chat.until("Written.")
        chat.until("\n> ")
        own.says("tool", "bash_start", "--command", "exit 3", at=project)
        deadline = time.monotonic() + PATIENCE
        while "exit code 3" not in (log := own.says("log", "--json", at=project)):
            assert time.monotonic() < deadline, log
        shown = own.says("log", at=project)
        chat.type("/log")
        in_chat = chat.until("\n> ")
        chat.type("/diff")
        diff = chat.until("\n> ")
        chat.type("/undo")
        undone = chat.until("\n> ")
        chat.end()

    assert "bash_start" in shown
    assert "bash_start" in in_chat
    assert "+A frog jumps into the pond" in diff
    assert "removed: /haiku.md" in undone
    assert not (project / "haiku.md").exists()


@pytest.mark.long
def test_a_key_of_the_environment_is_used_only_while_it_is_set(own: Laptop) -> None:
    project, home = own.project(), str(own.project() / "state")
    unset = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "TOOLCRIB_HOME": home}
    own.model.script = [says("Hello.")]
    own.says("run", "Say hello", at=project, TOOLCRIB_HOME=home)
    asked = len(own.model.received)

    after = own.run("run", "Say hello", at=project, **unset)
    models = own.run("models", at=project, **unset)

    assert after.status == 1
    assert "You have no credentials for 'openai-compatible'" in after.said
    assert "No model is configured." in models.said
    assert len(own.model.received) == asked


def test_an_error_names_what_is_missing_and_the_remedy(own: Laptop) -> None:
    project = own.project()

    no_model = own.says(
        "run",
        "hello",
        at=project,
        status=2,
        OPENAI_API_KEY="",
        OPENAI_BASE_URL="",
        TOOLCRIB_HOME=str(own.project() / "state"),
    )
    no_database = own.says(
        "log", at=project, status=2, TOOLCRIB_POSTGRES_BIN="/nowhere", TOOLCRIB_HOME=str(own.project() / "state")
    )
    own_files = own.says("log", at=own.base / "home", status=2)
    nothing_to_do = own.says("run", " ", at=project, status=2)

    assert "export ANTHROPIC_API_KEY" in no_model
    assert "toolcrib models login" in no_model
    assert "pip install 'toolcrib[embedded]'" in no_database
    assert "Use a project directory below it" in own_files
    assert "No task given" in nothing_to_do
    for said in (no_model, no_database, own_files, nothing_to_do):
        assert "Traceback" not in said


@pytest.mark.long
def test_several_directories_started_at_once_share_one_new_database() -> None:
    with laptop() as fresh, ThreadPoolExecutor(4) as at_once:
        projects = [fresh.project() for _ in range(4)]
        ended = list(
            at_once.map(
                lambda project: fresh.run("tool", "write", "--path", "/a.txt", "--content", "a\n", at=project), projects
            )
        )

        assert [one.status for one in ended] == [0] * 4, [one.said for one in ended]
        assert [(project / "a.txt").read_text() for project in projects] == ["a\n"] * 4
        assert not (fresh.data / "postgres" / "postmaster.pid").exists()


@pytest.mark.long
def test_a_link_opens_the_web_ui_of_a_directory_and_logs_in(own: Laptop) -> None:
    project = own.project()
    with own.terminal("web", "--no-open", at=project) as serving:
        serving.until("It logs you in once:\n\n  ")
        link = serving.until("\n")
        beside = own.says("web", "--no-open", at=project)
        serving.type("")
        serving.until("It logs you in once:\n\n  ")
        second = serving.until("\n")
        page, user, again = _opened(link)
        serving.interrupt()
        status = serving.process.wait(60)

    assert "Another toolcrib process serves this directory" in beside
    assert second != link
    assert "<title>Toolcrib</title>" in page
    assert user["email"] in json.loads((own.data / "secrets.json").read_text())["email"]
    assert again == 401
    assert status == 0


def _opened(link: str) -> tuple[str, dict[str, Any], int]:
    """Follows a link as a browser does: gets the page, logs in with the fragment, and asks for the current user."""
    where = urlsplit(link)
    assert where.hostname
    assert where.hostname.endswith(".localhost")
    given = {"link": where.fragment.removeprefix("login=")}
    # Browsers resolve every name below `localhost` to this machine; other programs need the address.
    address, headers = f"http://127.0.0.1:{where.port}", {"Host": where.netloc, "Origin": f"http://{where.netloc}"}
    with httpx2.Client(base_url=address, headers=headers, trust_env=False, timeout=PATIENCE) as browser:
        page = browser.get(where.path).text
        token = browser.post("/api/v1/auth/link", json=given).json()["access_token"]
        user = browser.get("/api/v1/auth/me", headers={"Authorization": f"Bearer {token}"}).json()
        return page, user, browser.post("/api/v1/auth/link", json=given).status_code
