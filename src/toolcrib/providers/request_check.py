"""Fits a request to what is known about its model, or says what to change."""

from collections.abc import Sequence
from dataclasses import replace

from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.messages import Attachment, Message, ToolResultMessage, UserMessage
from toolcrib.providers.model_catalog import ModelFacts, model_facts
from toolcrib.providers.provider import ModelRequest, stream_error


def request_flaw(provider: str, request: ModelRequest) -> ProviderError | None:
    """Return why the model would reject the request; None if it would not, or nobody knows."""
    facts = model_facts(provider, request.model)
    if request.effort is not None and facts.efforts is not None and request.effort not in facts.efforts:
        accepted = ", ".join(f"`{effort}`" for effort in facts.efforts)
        remedy = f"It accepts {accepted}." if accepted else "It accepts none: remove `effort` from the agent."
        message = f"The model {request.model!r} does not accept the effort `{request.effort}`. {remedy}"
        return stream_error(message, kind=ProviderErrorKind.REQUEST)
    return None


def readable(provider: str, request: ModelRequest) -> ModelRequest:
    """Return the request with a note in place of each image or PDF that the model is known not to read."""
    facts = model_facts(provider, request.model)
    if facts.images is not False and facts.pdfs is not False:
        return request
    return replace(request, messages=tuple(_readable(message, facts) for message in request.messages))


def _readable(message: Message, facts: ModelFacts) -> Message:
    if not isinstance(message, UserMessage | ToolResultMessage) or not message.attachments:
        return message
    shown = tuple(one for one in message.attachments if _is_read(one, facts))
    notes = _notes([one for one in message.attachments if one not in shown])
    return replace(message, text=f"{message.text}{notes}".strip(), attachments=shown)


def _is_read(one: Attachment, facts: ModelFacts) -> bool:
    return (facts.images if one.is_image else facts.pdfs) is not False


def _notes(attachments: Sequence[Attachment]) -> str:
    return "".join(
        f"\n[{one.name} is not shown: this model does not read {'images' if one.is_image else 'PDFs'}.]"
        for one in attachments
    )
