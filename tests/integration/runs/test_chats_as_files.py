"""A chat in the tree: the text of its session, for those who may read the session."""

from dataclasses import replace

import pytest

from tests.integration.conftest import new_caller
from tests.integration.runs.conftest import Office, says
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.tool_calls import Outcome, ToolCall

pytestmark = pytest.mark.req("WS-10", part="read as text")


def path_of(office: Office) -> str:
    return f"/chats/{office.session_id}.chat"


def said(content: str) -> list[str]:
    """Return the lines of a chat without their times."""
    return [line.partition(",")[0] if line.startswith("## ") else line for line in content.splitlines() if line]


async def test_chat_grows_with_its_session(office: Office) -> None:
    path = path_of(office)
    assert (await office.crib.result("read", path=path))["content"] == ""

    await office.send(
        "Write it, please.\nBoth lines.", says("", ("write", {"path": "/a.md", "content": "x"})), says("Dôné.")
    )

    content = (await office.crib.result("read", path=path))["content"]
    assert said(content) == [
        "## User", "Write it, please.", "Both lines.", "## Assistant", "Called: write", "## Assistant", "Dôné.",
    ]  # fmt: skip
    await office.send("Thanks.", says("Bye."))
    longer = (await office.crib.result("read", path=path))["content"]
    assert longer.startswith(content)
    assert said(longer)[-4:] == ["## User", "Thanks.", "## Assistant", "Bye."]


async def test_listing_has_a_chats_size_without_reading_it(office: Office) -> None:
    await office.send("Ünicode\nand lines", says("", ("ls", {})), says("Fine.\n"))

    content = (await office.crib.result("read", path=path_of(office)))["content"]
    [match] = (await office.crib.result("glob", pattern="*.chat"))["matches"]
    info = await office.crib.result("file_info", path=path_of(office))

    assert match["size"] == info["size"] == len(content.encode())
    assert info["line_count"] == content.count("\n")


async def test_compacted_session_keeps_its_complete_chat(office: Office) -> None:
    await office.send("First.", says("An answer."))
    await office.send("Second.", says("Another.", input_tokens=90_000))
    await office.send("Third.", says("They spoke of two things."), says("The third answer."))

    content = (await office.crib.result("read", path=path_of(office)))["content"]

    assert "They spoke of two things." in {one.content for one in await office.messages()}, "nothing was compacted"
    assert [line for line in said(content) if not line.startswith("## ")] == [
        "First.", "An answer.", "Second.", "Another.", "Third.", "The third answer.",
    ]  # fmt: skip
    assert (await office.crib.result("file_info", path=path_of(office)))["size"] == len(content.encode())


async def test_chats_can_be_searched(office: Office) -> None:
    await office.send("Where is the zebra?", says("The ZEBRA is striped.\r\nReally."))

    matches = (await office.crib.result("grep", pattern=r"zebra\b", case_sensitive=True))["matches"]
    assert [(match["path"], match["line_text"]) for match in matches] == [(path_of(office), "Where is the zebra?")]
    [match] = (await office.crib.result("grep", pattern="striped.$"))["matches"]
    assert match["line_text"] == "The ZEBRA is striped."


async def test_other_workspaces_do_not_see_a_chat(office: Office) -> None:
    await office.send("A secret word.", says("Hush."))
    stranger = await new_caller(office.crib.database, office.crib.settings)

    assert (await called(office, stranger, "read", path=path_of(office))).error is not None
    assert (await called(office, stranger, "grep", pattern="secret")).result["matches"] == []
    assert (await called(office, stranger, "ls", recursive=True)).result["entries"] == []


async def test_agent_reads_only_the_chats_that_its_rules_allow(office: Office) -> None:
    await office.send("A secret word.", says("Hush."))
    path = path_of(office)
    bound = await office.crib.agent(
        trust="autonomous",
        tool_permissions={name: {"allowed": True, "paths": ["src/**"]} for name in ("read", "grep", "ls")},
    )
    free = await office.crib.agent(trust="autonomous", tool_permissions={"read": {"allowed": True}})

    assert (await called(office, bound, "read", path=path)).error is not None
    outcome = await called(office, bound, "grep", pattern="secret")
    assert not outcome.succeeded or outcome.result["matches"] == []
    assert (await called(office, free, "read", path=path)).succeeded


async def called(office: Office, caller: Caller, tool: str, **arguments: object) -> Outcome:
    caller = replace(caller, call_id=CallId(new_id()))
    return await office.crib.engine.executor.execute(ToolCall(tool, arguments), caller)
