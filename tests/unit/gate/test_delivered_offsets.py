"""The thinking and the text of a message are two streams: neither hides the other from a subscriber."""

from toolcrib.core.events import Delta, DeltaType
from toolcrib.core.ids import SessionId, WorkspaceId, new_id
from toolcrib.events.deltas import DeliveredOffsets, PartialTexts

WORKSPACE, SESSION = WorkspaceId(new_id()), SessionId(new_id())


def piece(kind: DeltaType, text: str, offset: int = 0) -> Delta:
    return Delta(WORKSPACE, SESSION, kind, "message", text, attempt=1, offset=offset)


def test_text_is_delivered_after_thinking_of_the_same_length() -> None:
    ledger = DeliveredOffsets()
    ledger.undelivered(piece(DeltaType.THINKING, "Let me see."))

    assert ledger.undelivered(piece(DeltaType.TEXT, "Hello")) == piece(DeltaType.TEXT, "Hello")
    assert ledger.undelivered(piece(DeltaType.TEXT, " there", offset=5)) == piece(DeltaType.TEXT, " there", offset=5)


def test_a_late_subscriber_gets_thinking_and_text() -> None:
    so_far = PartialTexts()
    so_far.add(piece(DeltaType.THINKING, "Let me see."))
    so_far.add(piece(DeltaType.TEXT, "Hello"))
    so_far.add(piece(DeltaType.TEXT, " there", offset=5))

    assert [(one.type, one.text) for one in so_far.of((WORKSPACE, SESSION))] == [
        (DeltaType.THINKING, "Let me see."),
        (DeltaType.TEXT, "Hello there"),
    ]
