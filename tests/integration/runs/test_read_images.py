"""An agent reads an image or a PDF of the workspace, and its model sees it."""

import os
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.runs.conftest import RunFixture, says
from toolcrib.core.attachments import MAX_IMAGE_BYTES
from toolcrib.core.runs import RunEnding
from toolcrib.runs.read_attachments import MAX_SHOWN

# Larger than what a model gets of a textual result.
PNG = b"\x89PNG\r\n\x1a\n" + os.urandom(90_000)
PDF = b"%PDF-1.7\n" + bytes(range(256)) * 4


def shown(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a request that are not text."""
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part for part in parts if part["type"] != "text"]


async def test_an_image_that_the_agent_reads_is_shown_to_the_model(run_fixture: RunFixture) -> None:
    (run_fixture.workspace.project / "plan.png").write_bytes(PNG)
    run = await run_fixture.send("Look.", says("", ("read", {"path": "/plan.png"})), says("A plan."))

    assert run.end_reason is RunEnding.DONE
    asked = run_fixture.model_input()
    assert shown(asked) == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}}
    ]
    assert [message["content"] for message in asked if message["role"] == "tool"] == [
        f"/plan.png (image/png, {len(PNG):,} bytes)."
    ]

    await run_fixture.send("Look again at what you saw.", says("Still a plan."))
    assert len(shown(run_fixture.model_input())) == 1


async def test_a_pdf_that_the_agent_reads_is_shown_to_the_model(run_fixture: RunFixture) -> None:
    (run_fixture.workspace.project / "paper.pdf").write_bytes(PDF)
    await run_fixture.send("Look.", says("", ("read", {"path": "/paper.pdf"})), says("A paper."))

    (part,) = shown(run_fixture.model_input())
    assert part["file"]["filename"] == "paper.pdf"
    assert part["file"]["file_data"] == f"data:application/pdf;base64,{b64encode(PDF).decode()}"


async def test_what_is_no_image_and_what_is_too_large_is_not_shown(run_fixture: RunFixture) -> None:
    (run_fixture.workspace.project / "fake.png").write_bytes(b"\x00\x01 not a picture")
    (run_fixture.workspace.project / "huge.png").write_bytes(PNG[:8] + b"\x00" * MAX_IMAGE_BYTES)
    calls = [("read", {"path": "/fake.png"}), ("read", {"path": "/huge.png"})]
    await run_fixture.send("Look.", says("", *calls), says("Hm."))

    asked = run_fixture.model_input()
    fake, huge = [message["content"] for message in asked if message["role"] == "tool"]
    assert shown(asked) == []
    assert "base64" in fake
    assert "too large to be shown: the limit is 5,000,000 bytes" in huge


async def test_only_the_newest_images_are_shown(run_fixture: RunFixture) -> None:
    small = PNG[:2_000]
    for number in range(MAX_SHOWN + 2):
        (run_fixture.workspace.project / f"{number}.png").write_bytes(small)
    calls = [("read", {"path": f"/{number}.png"}) for number in range(MAX_SHOWN + 2)]
    await run_fixture.send("Look.", says("", *calls), says("Hm."))

    asked = run_fixture.model_input()
    results = [message["content"] for message in asked if message["role"] == "tool"]
    assert len(shown(asked)) == MAX_SHOWN
    assert ["not shown any more" in result for result in results] == [True] * 2 + [False] * MAX_SHOWN


async def test_an_attached_image_is_shown_with_the_message_as_it_was_then(run_fixture: RunFixture) -> None:
    image = run_fixture.workspace.project / "plan.png"
    image.write_bytes(PNG)
    caller = replace(run_fixture.workspace.caller, session_id=run_fixture.session_id)
    outcome = await run_fixture.workspace.call("read", caller, path="/plan.png")
    image.write_bytes(b"Something else.")

    attachments = [{"path": "/plan.png", "call_id": str(outcome.call_id)}]
    run_fixture.model.say(says("A plan."), says("Still a plan."))
    await run_fixture.runs.submit(
        run_fixture.tenant, run_fixture.session_id, "Look.", via="test", attachments=attachments
    )
    await run_fixture.carry_on()

    asked = run_fixture.model_input()[-1]
    assert asked["role"] == "user"
    assert asked["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}},
        {"type": "text", "text": f"Look.\n[Attached: /plan.png (image/png, {len(PNG):,} bytes).]"},
    ]


async def test_a_file_that_a_person_sends_is_shown_in_every_later_request(run_fixture: RunFixture) -> None:
    caller = replace(run_fixture.workspace.caller, session_id=run_fixture.session_id)
    data = b64encode(PNG).decode()
    outcome = await run_fixture.workspace.call("attach", caller, name="shot.png", content=data)
    run_fixture.model.say(says("A plan."))
    attachments = [{"path": "shot.png", "call_id": str(outcome.call_id)}]
    await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "", via="test", attachments=attachments)
    await run_fixture.carry_on()

    expected = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": f"\n[Attached: shot.png (image/png, {len(PNG):,} bytes).]"},
    ]
    assert run_fixture.model_input()[-1]["content"] == expected
    await run_fixture.send("And now?", says("Still a plan."))
    assert run_fixture.model_input()[-3]["content"] == expected


@pytest.mark.parametrize("summary", ["They looked.", ""], ids=["by the model", "by rule"])
async def test_a_summary_names_the_files_that_messages_brought(run_fixture: RunFixture, summary: str) -> None:
    (run_fixture.workspace.project / "plan.png").write_bytes(PNG)
    caller = replace(run_fixture.workspace.caller, session_id=run_fixture.session_id)
    outcome = await run_fixture.workspace.call("read", caller, path="/plan.png")
    tenant, session_id = run_fixture.tenant, run_fixture.session_id
    attachments = [{"path": "/plan.png", "call_id": str(outcome.call_id)}]
    run_fixture.model.say(says("A plan."))
    await run_fixture.runs.submit(tenant, session_id, "Look.", via="test", attachments=attachments)
    await run_fixture.carry_on()
    await run_fixture.send("Second.", says("Another."))

    run_fixture.model.say(says(summary))
    await run_fixture.runs.submit(tenant, session_id, "/compact", via="test", compacts=True)
    await run_fixture.carry_on()

    if summary:
        [asked] = [one["content"] for one in run_fixture.model_input() if one["role"] == "user"]
        assert "[user] Look. [attached: /plan.png]" in asked
    else:
        [summarised] = [one.content for one in await run_fixture.messages() if one.role == "summary"]
        assert "The person said: Look. [attached: /plan.png]" in summarised
