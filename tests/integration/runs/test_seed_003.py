"""The tests of tasks 7 to 10 of the fourth seed, under their names: messages, loop, handler, system prompt."""

from typing import Any

import pytest

from tests.fakes.model_server import Answer
from tests.integration.runs.conftest import RunFixture, opened_office, says
from toolcrib.core.runs import RunEnding

PROJECT: dict[str, Any] = {
    "toolsets": ["project"],
    "tool_permissions": {name: {"allowed": True} for name in ("read_file", "list_directory")},
}


@pytest.fixture
async def reader(run_fixture: RunFixture) -> RunFixture:
    """An agent with the two tools of that seed."""
    return await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, **PROJECT)


class TestMessages:
    async def test_append_message_stores_and_retrieves_metadata(self, reader: RunFixture) -> None:
        await reader.send("Read.", says("", ("read_file", {"path": "x"})), says("No."))

        [call] = (await reader.messages())[1].metadata["tool_calls"]  # type: ignore[index]
        assert call["type"] == "function"
        assert call["function"] == {"name": "read_file", "arguments": '{"path": "x"}'}

    async def test_append_message_supports_tool_role_with_tool_call_id_metadata(self, reader: RunFixture) -> None:
        (reader.workspace.project / "x").write_text("file contents\n")
        await reader.send("Read.", says("", ("read_file", {"path": "x"})), says("Read."))

        called, model_input = reader.model_input()[-2:]
        [call] = called["tool_calls"]
        assert (model_input["role"], model_input["tool_call_id"]) == ("tool", call["id"])
        assert "file contents" in model_input["content"]

    async def test_append_message_returns_null_metadata_when_none_provided(self, reader: RunFixture) -> None:
        await reader.send("hello", says("Hello."))

        assert [one.metadata for one in await reader.messages()] == [None, None]


class TestRunAgentLoop:
    async def test_returns_text_response_when_no_tool_calls(self, reader: RunFixture) -> None:
        await reader.send("hi", says("Hello world"))

        assert [(one.role, one.content) for one in await reader.messages()][1:] == [("assistant", "Hello world")]

    async def test_executes_tool_calls_and_loops_back_to_provider(self, reader: RunFixture) -> None:
        (reader.workspace.project / "x").write_text("echoed: hello\n")
        await reader.send("use it", says("", ("read_file", {"path": "x"})), says("Done"))

        assert "echoed: hello" in reader.model_input()[-1]["content"]
        assert (await reader.messages())[-1].content == "Done"
        kinds = [kind for kind, _ in await reader.events()]
        assert (kinds.count("tool-start"), kinds.count("tool-result")) == (1, 1)

    async def test_handles_unknown_tool_gracefully(self, reader: RunFixture) -> None:
        await reader.send("hi", says("", ("nonexistent", {})), says("I see the error"))

        assert "nonexistent" in reader.model_input()[-1]["content"]
        assert (await reader.messages())[-1].content == "I see the error"

    async def test_respects_max_iterations_safety_valve(self, run_fixture: RunFixture) -> None:
        reader = await opened_office(
            run_fixture.workspace, run_fixture.model, run_fixture.providers, **PROJECT, max_turns=3
        )
        await reader.send("loop", *(says("", ("list_directory", {"path": "."})) for _ in range(4)))

        assert "iteration" in (await reader.messages())[-1].content


class TestHandler:
    async def test_executes_tool_calls_and_persists_tool_messages(self, reader: RunFixture) -> None:
        await reader.send("look", says("", ("list_directory", {"path": "."})), says("Nothing."))

        asked, called, answered = await reader.messages()
        assert [one.role for one in (asked, called, answered)] == ["user", "assistant", "assistant"]
        calls = await reader.runs.calls(reader.tenant.workspace_id, called.call_ids)
        assert [call.state for call in calls.values()] == ["ended"]

    async def test_provider_that_fails_partially_is_reported_as_an_error(self, reader: RunFixture) -> None:
        run = await reader.send("hi", *[Answer(says("Some words of many").pieces[:3], cut=True)] * 3)

        assert run.end_reason is RunEnding.FAILED
        assert run.error is not None
        assert "Provider error" in run.error["message"]


class TestSystemPrompt:
    async def prompt(self, reader: RunFixture) -> str:
        await reader.send("hi", says("Hello."))
        return str(reader.model_input()[0]["content"])

    async def test_is_a_non_empty_string(self, reader: RunFixture) -> None:
        assert len(await self.prompt(reader)) > 50

    async def test_identifies_as_the_agent(self, reader: RunFixture) -> None:
        assert reader.agent.name in await self.prompt(reader)

    async def test_mentions_available_tools(self, reader: RunFixture) -> None:
        prompt = await self.prompt(reader)
        assert "read_file" in prompt
        assert "list_directory" in prompt

    async def test_does_not_claim_inability_to_read_files(self, reader: RunFixture) -> None:
        prompt = await self.prompt(reader)
        assert not any(claim in prompt for claim in ("cannot read", "cannot modify", "no access to the project"))
