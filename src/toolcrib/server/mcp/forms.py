"""What waits for a person, as a client can show it: a form for each question, or a link to where it is decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitRequestURLParams

from toolcrib.domain.errors import BadArguments
from toolcrib.domain.ids import CallId
from toolcrib.domain.outcomes import Outcome
from toolcrib.domain.questions import Item
from toolcrib.server.waiting import page_of

_SIMPLE: Final = frozenset({"string", "number", "integer", "boolean"})
# What the protocol's forms know; the answer is checked against the whole schema anyway.
_KEPT: Final = frozenset({"type", "enum", "enumNames", "oneOf", "items", "default"}) | frozenset(
    {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)


@dataclass(frozen=True, slots=True)
class Able:
    """What a client can show its person."""

    forms: bool = False
    links: bool = False

    @classmethod
    def of(cls, said: ClientCapabilities | None) -> "Able":
        elicitation = said.elicitation if said else None
        if elicitation is None:
            return cls()
        # A client that says no more than that it can ask, can show forms.
        return cls(elicitation.form is not None or elicitation.url is None, elicitation.url is not None)


@dataclass(frozen=True, slots=True)
class Pending:
    """What a call waits for: ``kind`` is ``approval`` or ``question``."""

    kind: str
    id: UUID
    call_id: CallId

    @classmethod
    def of(cls, outcome: Outcome) -> "Pending":
        kind = "approval" if "approval_id" in outcome.metadata else "question"
        return cls(kind, UUID(str(outcome.metadata[f"{kind}_id"])), outcome.call_id)

    @classmethod
    def read(cls, state: str) -> "Pending":
        """From what a client sent back. It says only where to look: the key that came with it decides what is seen."""
        try:
            kind, number, call_id = state.split(":")
            if kind not in ("approval", "question"):
                raise ValueError(kind)
            return cls(kind, UUID(number), CallId(UUID(call_id)))
        except ValueError:
            raise BadArguments({"requestState": "Not what this server gave out. Send it back unchanged."}) from None

    @property
    def state(self) -> str:
        return f"{self.kind}:{self.id}:{self.call_id}"

    def link(self, origin: str, workspace_id: UUID) -> str:
        return page_of(origin, workspace_id, self.id)


def form(items: Sequence[Item]) -> ElicitRequestFormParams | None:
    """One form for all of them, in the simple words that clients know; none if one of them needs more."""
    fields = {item.name: field for item in items if (field := _field(item)) is not None}
    if len(fields) < len(items):
        return None
    return ElicitRequestFormParams(
        message="\n".join(item.question for item in items),
        requested_schema={"type": "object", "properties": fields, "required": list(fields)},
    )


def link(pending: Pending, address: str) -> ElicitRequestURLParams:
    what = "decide on" if pending.kind == "approval" else "answer"
    return ElicitRequestURLParams(
        message=f"A person must {what} this in Toolcrib.", url=address, elicitation_id=str(pending.id)
    )


def confirmation(pending: Pending, address: str, what: str) -> ElicitRequestFormParams:
    """For clients that show no links: the same in words. To agree to it says only that they have been there."""
    where = "Decide on it" if pending.kind == "approval" else "Answer it"
    return ElicitRequestFormParams(
        message=f"A person must see to this in Toolcrib:\n{what}\n\n{where} at {address}, then continue here.",
        requested_schema={"type": "object", "properties": {}},
    )


def _field(item: Item) -> dict[str, Any] | None:
    if item.schema.get("type") not in _SIMPLE and not _is_choice(item.schema):
        return None
    return {key: value for key, value in item.schema.items() if key in _KEPT} | {"description": item.question}


def _is_choice(schema: Mapping[str, Any]) -> bool:
    """Whether it is a list of some of several given values."""
    items = schema.get("items")
    return schema.get("type") == "array" and isinstance(items, Mapping) and not {"enum", "anyOf"}.isdisjoint(items)
