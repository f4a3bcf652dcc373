"""The plain protocol (003 task 6), message by message."""

import json
from uuid import UUID

import pytest

from tests.integration.api.websocket_room import Room
from toolcrib.api.websocket.plain_protocol import TextBuffer, encode_plain_event
from toolcrib.core.events import Delta, DeltaType, Event
from toolcrib.core.ids import SessionId, WorkspaceId

SESSION = SessionId(UUID(int=1))
WORKSPACE = WorkspaceId(UUID(int=2))


def event(type_: str, **payload: object) -> Event:
    return Event(SESSION, type_, payload, 1)


def test_tool_call_is_encoded_with_id_name_and_arguments() -> None:
    result = encode_plain_event(
        event("tool-start", toolId="call_1", toolName="read_file", input={"path": "src/index.ts"})
    )

    assert result == {"type": "tool_call", "id": "call_1", "name": "read_file", "arguments": {"path": "src/index.ts"}}


def test_tool_result_is_encoded_with_its_output() -> None:
    result = encode_plain_event(
        event("tool-result", toolId="call_1", toolName="read_file", status="success", result="file contents")
    )

    assert result == {"type": "tool_result", "id": "call_1", "name": "read_file", "output": "file contents"}


def test_failed_tool_result_is_marked_as_an_error() -> None:
    result = encode_plain_event(
        event("tool-result", toolId="call_1", toolName="read_file", status="error", result="not found")
    )

    assert result is not None
    assert result["isError"] is True


def piece(offset: int, text: str) -> Delta:
    return Delta(WORKSPACE, SESSION, DeltaType.TEXT, "m", text, offset=offset)


START, END = event("stream-start", messageId="m"), event("stream-end", messageId="m", content="Hello world")


@pytest.mark.parametrize(
    ("items", "result"),
    [
        ([START, piece(0, "Hello "), piece(6, "world"), END], ["", "Hello ", "world", ""]),
        ([START, END], ["", "Hello world"]),
        ([START, piece(0, "Hel"), piece(6, "world"), END], ["", "Hel", "", "lo world"]),
        ([START, piece(6, "world"), piece(0, "Hello world"), END], ["", "", "Hello world", ""]),
        ([START, piece(0, "Hello "), piece(0, "Hello wo"), END], ["", "Hello ", "wo", "rld"]),
        ([piece(0, "Hello "), START, piece(6, "world"), END], ["", "Hello ", "world", ""]),
        ([START, piece(0, "Hello "), START, piece(0, "Hello world"), END], ["", "Hello ", "", "world", ""]),
    ],
    ids=["in order", "all lost", "one lost", "joined late", "doubled", "before its event", "begun again"],
)
def test_every_delta_is_sent_once_however_it_is_split(items: list[Event | Delta], result: list[str]) -> None:
    words = TextBuffer()

    assert [words.of(item) for item in items] == result


def test_finish_and_errors_have_their_own_messages() -> None:
    # A run with tool calls has several streams; only the last message is the end.
    assert encode_plain_event(event("stream-end", messageId="m")) is None
    assert encode_plain_event(event("run-state", state="ended", endReason="done")) == {
        "type": "done",
        "sessionId": str(SESSION),
    }
    failed = event("run-state", state="ended", endReason="failed", error={"message": "No key."})
    assert encode_plain_event(failed) == {"type": "error", "message": "Unexpected error during generation: No key."}
    provider = {"code": "PROVIDER_ERROR", "message": "Provider error (401): Unauthorized"}
    refused = encode_plain_event(event("run-state", state="ended", endReason="failed", error=provider))
    assert refused == {"type": "error", "message": "Provider error (401): Unauthorized"}
    assert encode_plain_event(event("error", message="It broke.")) == {"type": "error", "message": "It broke."}
    assert encode_plain_event(event("run-state", state="running")) is None


async def test_plain_client_receives_a_session_in_plain_messages(room: Room) -> None:
    async with room.client(subprotocols=["toolcrib.plain"]) as client:
        await client.socket.send(json.dumps({"type": "prompt", "text": "hi", "sessionId": str(room.session_id)}))
        refused = await client.next()
        await room.happens("tool-start", toolId="t", toolName="read_file", input={"path": "x"})
        await room.happens("tool-result", toolId="t", toolName="read_file", status="success", result="text")
        result = [await client.next() for _ in range(2)]
        await room.happens("stream-start", messageId="m")
        room.services.live.publish_delta(Delta(room.workspace_id, room.session_id, DeltaType.TEXT, "m", "Done."))
        await room.happens("stream-end", messageId="m", content="Done.")
        await room.happens("run-state", state="ended", endReason="done")
        result += [await client.next() for _ in range(2)]
        assert client.socket.subprotocol == "toolcrib.plain"

    assert refused["type"] == "error"
    assert "has no agent" in refused["message"]
    assert [message["type"] for message in result] == ["tool_call", "tool_result", "token", "done"]


async def test_prompt_that_cannot_be_answered_creates_no_session_and_returns_the_error(room: Room) -> None:
    async with room.client(subprotocols=["toolcrib.plain"]) as client:
        for message in ('{"type": "prompt", "text": "hi"}', '{"type": "nothing"}', "{"):
            await client.socket.send(message)
            assert (await client.next())["type"] == "error"

    sessions = await room.services.sessions.page(room.tenant, before=None, limit=10)
    assert len(sessions) == 1
