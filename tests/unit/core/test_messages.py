"""Stored messages, and arguments as models write them."""

import pytest

from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    ProviderMetadata,
    StoredMessage,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
    from_stored,
    to_stored,
)

CALL = ModelToolCall(ToolCallId("call_1"), "read_file", '{"path":"x"}')
CALLS = [{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"x"}'}}]


def test_message_union_supports_all_four_roles() -> None:
    messages: list[Message] = [
        SystemMessage("You are helpful"),
        UserMessage("hi"),
        AssistantMessage("hello"),
        AssistantMessage(tool_calls=(CALL,)),
        ToolResultMessage(ToolCallId("call_1"), "file contents"),
    ]

    assert [message.role for message in messages] == ["system", "user", "assistant", "assistant", "tool"]


def test_append_message_stores_and_retrieves_metadata() -> None:
    message = AssistantMessage(tool_calls=(CALL,))

    assert to_stored(message) == StoredMessage("assistant", "", {"tool_calls": CALLS})
    assert from_stored(to_stored(message)) == message


def test_append_message_supports_tool_role_with_tool_call_id_metadata() -> None:
    message = ToolResultMessage(ToolCallId("call_1"), "file contents")

    assert to_stored(message) == StoredMessage("tool", "file contents", {"tool_call_id": "call_1"})
    assert from_stored(to_stored(message)) == message


def test_append_message_returns_null_metadata_when_none_provided() -> None:
    assert to_stored(UserMessage("hello")).metadata is None


@pytest.mark.parametrize(
    "message",
    [
        SystemMessage("s"),
        UserMessage(""),
        AssistantMessage("a", "hm", (CALL, CALL), ProviderMetadata("anthropic", "m", {"blocks": [{"text": 1}]})),
        AssistantMessage(),
        ToolResultMessage(ToolCallId("1"), "no", is_error=True),
    ],
    ids=["system", "user", "assistant", "silent assistant", "tool"],
)
def test_a_stored_message_is_loaded_unchanged(message: Message) -> None:
    assert from_stored(to_stored(message)) == message


def test_an_unknown_role_is_rejected() -> None:
    with pytest.raises(ValueError, match="developer"):
        from_stored(StoredMessage("developer", "x"))


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ("", {}),
        ("  ", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", None),
        ("null", None),
        ("{oops", None),
        ("[" * 100_000, None),
    ],
    ids=lambda value: str(value)[:12],
)
def test_arguments_are_an_object_or_none(arguments: str, parsed: object) -> None:
    assert ModelToolCall(ToolCallId("1"), "read", arguments).parsed() == parsed
