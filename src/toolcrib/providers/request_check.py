"""Checks a request against what is known about its model, so that the person reads what to change."""

from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.providers.model_catalog import model_facts
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
