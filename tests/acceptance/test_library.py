"""Toolcrib from Python: an agent on a directory, an approval callback, custom tools, streaming, undo."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.acceptance.local_machine import Model, model_beside
from tests.databases import DatabaseUrls
from tests.fakes.model_server import KEY
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE
from toolcrib import (
    AbsolutePath,
    AnswerButton,
    ApprovalOut,
    Approve,
    AsyncToolcrib,
    Danger,
    Effects,
    Question,
    QuestionPauseOut,
    Reject,
    RunResult,
    RunUnfinished,
    TextChunk,
    ToolCallFinished,
    ToolCallStarted,
    ToolContext,
    Toolcrib,
    ToolcribError,
    ToolFailed,
    tool,
)
from toolcrib.core.errors import BadArguments, Misconfigured
from toolcrib.sdk.approval_callbacks import NoAnswerCallback

EXAMPLES = Path(__file__).parents[2] / "examples"
WRITES = ("write", {"path": "/notes.md", "content": "# Notes\n"})
REMOVES = ("rm", {"path": "/notes.md"})
ASKS = (
    "ask_user",
    {
        "questions": [
            {
                "name": "colour",
                "question": "Which colour?",
                "schema": {"type": "string"},
                "buttons": [{"label": "Red", "value": "red"}, {"label": "Blue", "value": "blue"}],
            }
        ]
    },
)


class RenamedHeading(BaseModel):
    path: str
    occurrences: int


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with model_beside() as fake:
        yield fake


@pytest.fixture
def surroundings(
    model: Model, database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """A program's environment: a database, a data directory, and a model."""
    named = {
        "TOOLCRIB_DATABASE_URL": database_urls.app,
        "TOOLCRIB_SYSTEM_DATABASE_URL": database_urls.system,
        "TOOLCRIB_HOME": str(tmp_path_factory.mktemp("home")),
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{model.url}/v1",
    }
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    model.script = []
    return named


@pytest.fixture
def project(surroundings: dict[str, str], tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def test_five_lines_run_an_agent_whose_calls_a_callback_approves(project: Path, model: Model) -> None:
    model.script = [says("I shall write notes.", WRITES), says("They stand in notes.md.")]
    seen = []

    def ask(approval: ApprovalOut) -> bool:
        seen.append((approval.tool, approval.diff, (project / "notes.md").exists()))
        return True

    with Toolcrib(project, approve=ask) as crib:
        result = crib.run("Write notes")
        changed = crib.changes(result)
        read = crib.call("read", path="/notes.md")
        audit = [(record.tool, record.decision, record.outcome) for record in crib.log()]
        undone = crib.undo(result)
        gone = not (project / "notes.md").exists()
        crib.redo()

    (tool_name, diff, existed) = seen[0]
    assert (tool_name, existed) == ("write", False)
    assert "+# Notes" in diff
    assert result.text == "They stand in notes.md."
    assert result.ok
    assert [(one["path"], one["change"]) for one in changed] == [("/notes.md", "created")]
    assert read["content"] == "# Notes\n"
    assert ("write", "ask", "done") in audit
    assert [one["path"] for one in undone["changes"]] == ["/notes.md"]
    assert gone
    assert (project / "notes.md").read_text() == "# Notes\n"


def test_images_of_this_computer_and_bytes_are_sent_with_a_prompt(project: Path, model: Model, tmp_path: Path) -> None:
    image = b"\x89PNG\r\n\x1a\n\x00"
    (tmp_path / "outside.png").write_bytes(image)
    (project / "inside.png").write_bytes(image)
    (tmp_path / "notes.txt").write_text("No picture.")
    model.script = [says("Three pictures."), says("One.")]

    with Toolcrib(project) as crib:
        result = crib.run("What are these?", attachments=[tmp_path / "outside.png", image, "/inside.png"])
        for wrong in (tmp_path / "notes.txt", tmp_path / "missing.png", b"no picture", "/missing.png"):
            with pytest.raises(BadArguments, match="Validation failed"):
                crib.run("And this?", attachments=[wrong])

    assert result.text == "Three pictures."
    sent = json.dumps(model.received[-1].body)
    assert sent.count("data:image/png;base64,iVBORw0KGgoA") == 3
    assert all(name in sent for name in ("outside.png", "image-2.png", "/inside.png"))


def test_without_a_callback_no_call_that_needs_approval_is_executed(project: Path, model: Model) -> None:
    model.script = [says("", WRITES), says("I may not.")]

    with Toolcrib(project, trust="guided") as crib:
        foreseen = crib.explain("write", path="/notes.md", content="")
        result = crib.run("Write notes")

    assert (foreseen["action"], foreseen["rule"]) == ("ask", "trust.guided.dangerous")
    assert result.text == "I may not."
    assert list(project.iterdir()) == []
    assert "There is no approval callback." in str(model.last.body["messages"][-1])


def test_without_a_callback_and_trust_what_can_be_undone_is_applied_and_nothing_else(
    project: Path, model: Model
) -> None:
    @tool
    def order(number: str) -> str:
        """Order a part."""
        return "ordered"

    model.script = [says("", WRITES), says("", ("order", {"number": "A-1"})), says("One of two.")]

    with Toolcrib(project, tools=[order]) as crib:
        foreseen = [crib.explain(name, **given)["rule"] for name, given in (WRITES, ("order", {"number": "A-1"}))]
        result = crib.run("Write notes, and order")
        answers = str(model.last.body["messages"])
        written = (project / "notes.md").exists()
        crib.undo(result)

    assert foreseen == ["trust.review.undoable", "trust.review.irreversible"]
    assert written
    assert "There is no approval callback." in answers
    assert list(project.iterdir()) == []


def test_a_decision_may_have_a_wider_scope_or_a_reason(project: Path, model: Model) -> None:
    (project / "notes.md").write_text("mine\n")
    model.script = [
        *(says("", ("mkdir", {"path": "/one"})), says("", ("mkdir", {"path": "/two"})), says("", REMOVES)),
        says("Done."),
    ]
    asked = []

    def ask(approval: ApprovalOut) -> Approve | Reject:
        asked.append(approval.tool)
        return Reject("Leave my notes alone.") if approval.tool == "rm" else Approve("session")

    with Toolcrib(project, approve=ask) as crib:
        crib.run("Tidy up")

    assert "rm" in asked
    assert (project / "notes.md").exists()
    assert (project / "one").is_dir()
    assert "Leave my notes alone." in str(model.last.body["messages"][-1])


def test_a_callback_result_that_is_no_approval_rejects(project: Path, model: Model) -> None:
    model.script = [says("", WRITES), says("I may not.")]

    def anything(_: ApprovalOut) -> Any:
        return "yes"

    with Toolcrib(project, approve=anything) as crib:
        crib.run("Write notes")

    assert list(project.iterdir()) == []


def test_a_callback_answers_questions_or_the_run_ends(project: Path, model: Model) -> None:
    asked: list[QuestionPauseOut] = []

    def answer(question: QuestionPauseOut) -> dict[str, str]:
        asked.append(question)
        return {"colour": "blue"}

    model.script = [says("", ASKS), says("Blue it is.")]
    with Toolcrib(project, answer=answer) as crib:
        result = crib.run("Paint it").text
    model.script = [says("", ASKS)]
    with Toolcrib(project) as crib, pytest.raises(NoAnswerCallback, match="Which colour") as nobody:
        crib.run("Paint it")

    assert result == "Blue it is."
    assert asked[0].questions[0].question == "Which colour?"
    assert "answer=" in nobody.value.message


def test_custom_tools_pass_the_gate_and_are_described_by_their_functions(project: Path, model: Model) -> None:
    @tool(danger=Danger.SAFE)
    async def stock(number: str) -> dict[str, int]:
        """How many of a part there are."""
        return {number: 4}

    @tool
    def order(number: str, context: ToolContext) -> str:
        """Order a part."""
        return f"ordered {number}"

    approved: list[str] = []

    def ask(approval: ApprovalOut) -> bool:
        approved.append(approval.tool)
        return True

    model.script = [says("", ("stock", {"number": "A-1"})), says("", ("order", {"number": "A-1"})), says("Done.")]
    with Toolcrib(project, tools=[stock, order], instructions="You know parts.", approve=ask) as crib:
        events = list(crib.stream("Order A-1"))
        own = crib.call("stock", number="B-2")
        with pytest.raises(Misconfigured, match="without your tools"), Toolcrib(project, tools=[stock]):
            pass

    offered = {one["function"]["name"]: one["function"]["description"] for one in model.last.body["tools"]}
    assert offered["stock"] == "How many of a part there are."
    assert "You know parts." in str(model.last.body["messages"][0])
    # Only the dangerous one.
    assert approved == ["order"]
    assert own == {"B-2": 4}
    calls = [(event.tool, event.ok) for event in events if isinstance(event, ToolCallFinished)]
    assert calls == [("stock", True), ("order", True)]


def test_custom_tool_asks_a_person_and_the_answers_are_its_result(project: Path, model: Model) -> None:
    @tool(danger=Danger.SAFE)
    async def pick_colour(context: ToolContext) -> None:
        """Ask which colour the wall should have."""
        buttons = (AnswerButton("Red", "red"), AnswerButton("Blue", "blue"))
        context.ask(Question("colour", "Which colour?", {"type": "string"}, buttons))

    model.script = [says("", ("pick_colour", {})), says("Blue it is.")]
    with Toolcrib(project, tools=[pick_colour], answer=lambda _: {"colour": "blue"}) as crib:
        events = list(crib.stream("Paint it"))

    (ended,) = [event for event in events if isinstance(event, ToolCallFinished)]
    assert (ended.tool, ended.ok) == ("pick_colour", True)
    assert "blue" in str(ended.result)
    assert "blue" in str(model.last.body["messages"])


def test_custom_tool_changes_files_that_undo_takes_back(project: Path, model: Model) -> None:
    @tool(toolset="docs", idempotent=True, effects=lambda a: Effects(reads=(a.path,), writes=(a.path, "/CHANGELOG.md")))
    async def rename_heading(path: AbsolutePath, old: str, new: str, context: ToolContext) -> RenamedHeading:
        """Rename a Markdown heading and note it in the change log.

        Args:
            path: The Markdown file.
        """
        text = await context.files.read_text(path)
        occurrences = text.count(f"# {old}\n")
        if not occurrences:
            raise ToolFailed(f"{path} has no heading {old!r}. Read the file, then repeat the call.")
        await context.files.write_text(path, text.replace(f"# {old}\n", f"# {new}\n"))
        log = "/CHANGELOG.md"
        before = await context.files.read_text(log) if await context.files.exists(log) else ""
        await context.files.write_text(log, f"{before}- {path}: {old} is now {new}\n")
        context.emit(f"renamed {occurrences}\n")
        return RenamedHeading(path=path.path, occurrences=occurrences)

    (project / "guide.md").write_text("# Start\n")
    given = {"path": "/guide.md", "old": "Start", "new": "First steps"}
    model.script = [says("", ("rename_heading", given)), says("Renamed.")]
    approved: list[ApprovalOut] = []

    def ask(approval: ApprovalOut) -> bool:
        approved.append(approval)
        return True

    with Toolcrib(project, tools=[rename_heading], approve=ask) as crib:
        result = crib.run("Rename it")
        after = (project / "guide.md").read_text(), (project / "CHANGELOG.md").read_text()
        undone = crib.undo(result)
        with pytest.raises(ToolcribError, match="has no heading 'Begin'"):
            crib.call("rename_heading", path="/guide.md", old="Begin", new="x")
        own = crib.call("rename_heading", **given)
        crib.undo()

    # The person saw both files before anything was changed.
    assert sorted(approved[0].effects.writes) == ["/CHANGELOG.md", "/guide.md"]
    assert after == ("# First steps\n", "- @project/guide.md: Start is now First steps\n")
    assert {change["path"] for change in undone["changes"]} == {"/guide.md", "/CHANGELOG.md"}
    assert own == {"path": "/guide.md", "occurrences": 1}
    assert (project / "guide.md").read_text() == "# Start\n"
    assert not (project / "CHANGELOG.md").exists()


def test_events_stream_as_they_happen_and_end_with_the_result(project: Path, model: Model) -> None:
    model.script = [says("Look: ", ("ls", {"path": "/"})), says("Empty.")]

    with Toolcrib(project) as crib:
        events = list(crib.stream("What is here?"))

    assert "".join(event.text for event in events if isinstance(event, TextChunk)) == "Look: Empty."
    assert [event.tool for event in events if isinstance(event, ToolCallStarted)] == ["ls"]
    assert isinstance(events[-1], RunResult)


def test_a_conversation_continues_until_another_starts(project: Path, model: Model) -> None:
    model.script = [says("One."), says("Two."), says("Three.")]

    with Toolcrib(project) as crib:
        first = crib.run("First")
        second = crib.run("Second")
        remembered = str(model.last.body["messages"])
        crib.new_session(plan=True)
        third = crib.run("Third")
        forgotten = str(model.last.body["messages"])
        crib.resume(first.session_id)
        model.script = [says("Four.")]
        crib.run("Fourth")
        resumed = str(model.last.body["messages"])

    assert first.session_id == second.session_id != third.session_id
    assert "First" in remembered
    assert "First" not in forgotten
    assert all(one in resumed for one in ("First", "Second", "Fourth"))


def test_a_failed_run_raises_the_reason(project: Path, model: Model) -> None:
    with Toolcrib(project, model="openai-compatible/gpt-fake") as crib, pytest.raises(RunUnfinished) as failed:
        crib.run("no scene is called so")

    assert failed.value.result.ending == "failed"
    assert "no such scene" in failed.value.message


def test_a_run_that_its_program_abandons_is_stopped(project: Path, model: Model) -> None:
    model.script = [says("", WRITES), says("Never said.")]

    def give_up(_: ApprovalOut) -> bool:
        raise LookupError("the program's own trouble")

    with Toolcrib(project, approve=give_up) as crib:
        with pytest.raises(LookupError):
            crib.run("Write notes")
        (session,) = crib.client.sessions(crib.workspace_id)
        result = crib.client.stream_events(crib.workspace_id, session.id, after=0)
        ended = next(one.payload for one in result if one.payload.get("state") == "ended" and "runId" in one.payload)

    assert ended["endReason"] == "cancelled"
    assert list(project.iterdir()) == []


async def test_a_program_with_an_event_loop_is_not_blocked(project: Path, model: Model) -> None:
    model.script = [says("", WRITES), says("Written.")]
    asked_in = []

    async def ask(_: ApprovalOut) -> bool:
        asked_in.append(asyncio.get_running_loop())
        return True

    async with AsyncToolcrib(project, approve=ask) as crib:
        events = [event async for event in crib.stream("Write notes")]
        read = await crib.call("read", path="/notes.md")
        undone = await crib.undo()

    assert asked_in == [asyncio.get_running_loop()]
    assert isinstance(events[-1], RunResult)
    assert events[-1].text == "Written."
    assert read["content"] == "# Notes\n"
    assert [one["path"] for one in undone["changes"]] == ["/notes.md"]


async def test_cancelling_the_task_stops_the_run(project: Path, model: Model) -> None:
    model.script = [says("", WRITES), says("Never said.")]
    asked = asyncio.Event()

    async def ask(_: ApprovalOut) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with AsyncToolcrib(project, approve=ask) as crib:
        running = asyncio.create_task(crib.run("Write notes"))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, PATIENCE)

    assert list(project.iterdir()) == []


def test_the_programs_signal_handlers_are_kept(project: Path) -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        with Toolcrib(project):
            during = signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert during is own
    assert not [thread.name for thread in threading.enumerate() if thread.name == "toolcrib-server"]


def test_wrong_use_and_conflicting_arguments_are_configuration_errors(project: Path) -> None:
    with pytest.raises(Misconfigured, match="with Toolcrib"):
        Toolcrib(project).run("Hello")
    with pytest.raises(Misconfigured, match="Leave them out"):
        Toolcrib(project, agent="reviewer", instructions="Review.")
    with pytest.raises(Misconfigured, match="Leave them out"):
        Toolcrib(server="http://127.0.0.1:1", model="openai/gpt-5")


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_unchanged(name: str, project: Path, surroundings: dict[str, str], model: Model) -> None:
    (project / "greeting.py").write_text("def greet() -> str:\n    return 'Oi'\n")
    (project / "test_greeting.py").write_text(
        "import unittest\nfrom greeting import greet\n\n\nclass Greeting(unittest.TestCase):\n"
        "    def test_greet(self):\n        self.assertEqual(greet(), 'Oi')\n"
    )
    haiku = {"path": "/haiku.md", "content": "An old silent lock\n"}
    polite = {"path": "/greeting.py", "old_string": "Oi", "new_string": "Good day"}
    scripts: dict[str, list[Any]] = {
        "five_lines.py": [says("", ("write", haiku)), says("It is written.")],
        "own_file_tool.py": [],
        "own_tool.py": [says("", ("lookup_part", {"number": "A-113"})), says("There are 4.")],
        "undo_when_tests_fail.py": [
            says("", ("read", {"path": "/greeting.py"})),
            says("", ("edit", polite)),
            says("Done."),
        ],
    }
    expected: dict[str, tuple[Any, ...]] = {
        "five_lines.py": (0, "It is written.", "+An old silent lock"),
        "own_file_tool.py": (0, "'occurrences': 1", "# First steps", "Start is now First steps", "undone: /"),
        "own_tool.py": (0, "There are 4.", "lookup_part"),
        "undo_when_tests_fail.py": (1, "1 change was undone.", "modified /greeting.py"),
    }
    model.script = scripts[name]

    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        input="y\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(project), **surroundings},
    )

    status, *words = expected[name]
    assert ran.returncode == status, ran.stderr
    for word in words:
        assert word in ran.stdout
    assert "Oi" in (project / "greeting.py").read_text()
