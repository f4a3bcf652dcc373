"""How events and deltas are told over WebSocket and SSE: ``{type, payload, seq?}`` in camelCase."""

from typing import Any, assert_never

from toolcrib.domain.events import Delta, DeltaType, Event, EventType
from toolcrib.engine.telling import approval_payload, question_payload
from toolcrib.server.services import Services
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import Session

PREFIX = "chat:"


class Teller:
    """Tells one session to one watcher. Remembers to which message a running call belongs."""

    def __init__(self) -> None:
        self._message_of: dict[str, Any] = {}

    def tell(self, item: Event | Delta) -> dict[str, Any]:
        return self._event(item) if isinstance(item, Event) else self._delta(item)

    def _event(self, event: Event) -> dict[str, Any]:
        tool = event.payload.get("toolId")
        if event.type == EventType.TOOL_START and "messageId" in event.payload:
            self._message_of[str(tool)] = event.payload["messageId"]
        elif event.type == EventType.TOOL_RESULT:
            self._message_of.pop(str(tool), None)
        payload = {"conversationId": str(event.session_id), **event.payload}
        return {"type": f"{PREFIX}{event.type}", "payload": payload, "seq": event.seq}

    def _delta(self, delta: Delta) -> dict[str, Any]:
        match delta.type:
            case DeltaType.TEXT | DeltaType.THINKING:
                said = {"messageId": delta.source, "content": delta.text}
            case DeltaType.TOOL:
                said = {"toolId": delta.source, "chunk": delta.text}
                if (message := self._message_of.get(delta.source)) is not None:
                    said["messageId"] = message
            case _:
                assert_never(delta.type)
        place = {"offset": delta.offset, "attempt": delta.attempt}
        return {"type": f"{PREFIX}{delta.type}", "payload": {"conversationId": str(delta.session_id), **said, **place}}


async def waiting_ones(services: Services, tenant: Tenant, session: Session, *, after: int) -> list[dict[str, Any]]:
    """Where the watcher stands, and what waits for a person, asked however long ago.

    Without numbers, and marked ``again``: as events they were told before, or come by themselves.
    """
    approvals = await services.approvals.open(tenant, session_id=session.id)
    questions = await services.questions.open(tenant, session_id=session.id)
    about = {"conversationId": str(session.id)}
    resumed = {
        **about,
        "after": after,
        "newest": session.last_seq,
        "mode": session.mode,
        "agentId": session.agent_id,
        "openApprovals": [approval.id for approval in approvals],
        "openQuestions": [question.id for question in questions],
    }
    return [
        {"type": f"{PREFIX}resumed", "payload": resumed},
        *(
            {"type": f"{PREFIX}{EventType.TOOL_CONFIRM}", "payload": about | approval_payload(one) | {"again": True}}
            for one in approvals
        ),
        *(
            {"type": f"{PREFIX}{EventType.QUESTION}", "payload": about | question_payload(one) | {"again": True}}
            for one in questions
        ),
    ]
