"""Images in results of MCP servers, as the model sees them."""

from typing import Any, cast

import pytest

from toolcrib.core.attachments import attachment
from toolcrib.core.ids import CallId, MessageId, WorkspaceId, new_id
from toolcrib.core.messages import ToolResultMessage
from toolcrib.core.runs import RequestedCallState, SessionMessage
from toolcrib.policy.model_results import CallProgress
from toolcrib.runs.model_turn import conversation
from toolcrib.runs.read_attachments import MAX_SHOWN, ReadAttachments
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.tools.people.attach import attachment_media

IMAGE = attachment("chart.png", b"\x89PNG\r\n\x1a\n\x00")
MEDIUM = attachment_media(IMAGE)


class NoRows:
    """Stands for the database, which has nothing to add: the run has all its calls."""

    async def calls(self, *_: Any) -> dict[CallId, CallProgress]:
        return {}


async def shown(*results: Any, tool: str = "mcp:charts/draw") -> list[ToolResultMessage]:
    """The results of calls as they are sent to the model."""
    calls = {
        (call_id := CallId(new_id())): CallProgress(call_id, tool, RequestedCallState.ENDED, result)
        for result in results
    }
    requested = [
        {"id": str(call_id), "call_id": str(call_id), "function": {"name": tool, "arguments": "{}"}}
        for call_id in calls
    ]
    said = SessionMessage(MessageId(new_id()), 1, None, "assistant", "", {"tool_calls": requested})
    rows = cast("RunStepStore", NoRows())
    read = await ReadAttachments().of(list(calls), calls, rows, WorkspaceId(new_id()))
    return [one for one in conversation("", [said], calls, read) if isinstance(one, ToolResultMessage)]


async def test_an_image_of_an_mcp_result_is_shown_besides_its_text() -> None:
    (result,) = await shown({"text": "Here it is.", "media": [MEDIUM]})

    assert result.attachments == (IMAGE,)
    assert "Here it is." in result.text
    assert "[Attached: chart.png (image/png, 9 bytes).]" in result.text
    assert IMAGE.base64 not in result.text


@pytest.mark.parametrize(
    ("medium", "why"),
    [
        ({"type": "image", "mime_type": "image/png", "data": "AAAA"}, "image 1 is not an image"),
        ({"type": "image", "mime_type": "image/png", "data": "@"}, "is not base64"),
    ],
)
async def test_what_only_claims_to_be_an_image_is_described(medium: dict[str, Any], why: str) -> None:
    (result,) = await shown({"text": "Here it is.", "media": [medium]})

    assert result.attachments == ()
    assert why in result.text


@pytest.mark.parametrize(
    "result",
    [
        {"text": "A song.", "media": [{"type": "audio", "mime_type": "audio/wav", "data": "AAAA"}]},
        {"text": "Too much.", "media": [{"type": "image", "left_out": "3,000,000 characters."}]},
        # Not the form of an MCP server: another tool's own field.
        {"media": [MEDIUM], "rows": 3},
    ],
)
async def test_other_results_stay_as_they_are(result: dict[str, Any]) -> None:
    (sent,) = await shown(result)

    assert sent.attachments == ()
    assert "[Attached:" not in sent.text


async def test_only_the_newest_images_of_all_results_are_shown() -> None:
    results = await shown(*[{"text": "", "media": [MEDIUM, MEDIUM]}] * (MAX_SHOWN // 2 + 1))

    assert [len(result.attachments) for result in results] == [0] + [2] * (MAX_SHOWN // 2)
    assert "It is not shown any more." in results[0].text


async def test_a_result_with_very_many_images_shows_the_first() -> None:
    (result,) = await shown({"text": "", "media": [MEDIUM] * (MAX_SHOWN + 1)})

    assert len(result.attachments) == MAX_SHOWN
    assert f"Only the first {MAX_SHOWN} of {MAX_SHOWN + 1} are shown." in result.text
