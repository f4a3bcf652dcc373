"""A chat in the tree: the text of its session, for those who may read the session."""

from dataclasses import replace

from tests.integration.conftest import new_caller
from tests.integration.runs.conftest import RunFixture, says
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.tool_calls import Outcome, ToolCall


def path_of(run_fixture: RunFixture) -> str:
    return f"/chats/{run_fixture.session_id}.chat"


def said(content: str) -> list[str]:
    """Return the lines of a chat without their times."""
    return [line.partition(",")[0] if line.startswith("## ") else line for line in content.splitlines() if line]


async def test_chat_grows_with_its_session(run_fixture: RunFixture) -> None:
    path = path_of(run_fixture)
    assert (await run_fixture.workspace.result("read", path=path))["content"] == ""

    await run_fixture.send(
        "Write it, please.\nBoth lines.", says("", ("write", {"path": "/a.md", "content": "x"})), says("Dôné.")
    )

    content = (await run_fixture.workspace.result("read", path=path))["content"]
    assert said(content) == [
        "# Write it, please. Both lines.",
        "## User", "Write it, please.", "Both lines.", "## Assistant", "Called: write", "## Assistant", "Dôné.",
    ]  # fmt: skip
    await run_fixture.send("Thanks.", says("Bye."))
    longer = (await run_fixture.workspace.result("read", path=path))["content"]
    assert longer.startswith(content)
    assert said(longer)[-4:] == ["## User", "Thanks.", "## Assistant", "Bye."]


async def test_listing_has_a_chats_size_without_reading_it(run_fixture: RunFixture) -> None:
    await run_fixture.send("Ünicode\nand lines", says("", ("ls", {})), says("Fine.\n"))

    content = (await run_fixture.workspace.result("read", path=path_of(run_fixture)))["content"]
    [match] = (await run_fixture.workspace.result("glob", pattern="*.chat"))["matches"]
    info = await run_fixture.workspace.result("file_info", path=path_of(run_fixture))

    assert match["size"] == info["size"] == len(content.encode())
    assert info["line_count"] == content.count("\n")


async def test_compacted_session_keeps_its_complete_chat(run_fixture: RunFixture) -> None:
    await run_fixture.send("First.", says("An answer."))
    await run_fixture.send("Second.", says("Another.", input_tokens=90_000))
    await run_fixture.send("Third.", says("They spoke of two things."), says("The third answer."))

    content = (await run_fixture.workspace.result("read", path=path_of(run_fixture)))["content"]

    assert "They spoke of two things." in {one.content for one in await run_fixture.messages()}, "nothing was compacted"
    assert [line for line in said(content) if not line.startswith("## ")] == [
        "# First.", "First.", "An answer.", "Second.", "Another.", "Third.", "The third answer.",
    ]  # fmt: skip
    assert (await run_fixture.workspace.result("file_info", path=path_of(run_fixture)))["size"] == len(content.encode())


async def test_chats_can_be_searched(run_fixture: RunFixture) -> None:
    await run_fixture.send("Where is the zebra?", says("The ZEBRA is striped.\r\nReally."))

    matches = (await run_fixture.workspace.result("grep", pattern=r"zebra\b", case_sensitive=True))["matches"]
    # The title is made from the first message.
    assert [(match["path"], match["line_text"]) for match in matches] == [
        (path_of(run_fixture), "# Where is the zebra?"),
        (path_of(run_fixture), "Where is the zebra?"),
    ]
    [match] = (await run_fixture.workspace.result("grep", pattern="striped.$"))["matches"]
    assert match["line_text"] == "The ZEBRA is striped."


async def test_other_workspaces_do_not_see_a_chat(run_fixture: RunFixture) -> None:
    await run_fixture.send("A secret word.", says("Hush."))
    stranger = await new_caller(run_fixture.workspace.engine)

    assert (await called(run_fixture, stranger, "read", path=path_of(run_fixture))).error is not None
    assert (await called(run_fixture, stranger, "grep", pattern="secret")).result["matches"] == []
    assert (await called(run_fixture, stranger, "ls", recursive=True)).result["entries"] == []


async def test_agent_reads_only_the_chats_that_its_rules_allow(run_fixture: RunFixture) -> None:
    await run_fixture.send("A secret word.", says("Hush."))
    path = path_of(run_fixture)
    bound = await run_fixture.workspace.agent(
        trust="autonomous",
        tool_permissions={name: {"allowed": True, "paths": ["src/**"]} for name in ("read", "grep", "ls")},
    )
    free = await run_fixture.workspace.agent(trust="autonomous", tool_permissions={"read": {"allowed": True}})

    assert (await called(run_fixture, bound, "read", path=path)).error is not None
    outcome = await called(run_fixture, bound, "grep", pattern="secret")
    assert not outcome.succeeded or outcome.result["matches"] == []
    assert (await called(run_fixture, free, "read", path=path)).succeeded


async def called(run_fixture: RunFixture, caller: Caller, tool: str, **arguments: object) -> Outcome:
    caller = replace(caller, call_id=CallId(new_id()))
    return await run_fixture.workspace.engine.executor.execute(ToolCall(tool, arguments), caller)
