"""What provider errors mean."""

import pytest

from toolcrib.core.errors import ProviderErrorKind
from toolcrib.providers.provider import MAX_BODY, response_error

KINDS = [
    (401, "Unauthorized", ProviderErrorKind.CREDENTIALS),
    (403, "no access to this model", ProviderErrorKind.CREDENTIALS),
    (402, "pay", ProviderErrorKind.QUOTA),
    (429, "slow down", ProviderErrorKind.RATE_LIMIT),
    (429, '{"error": {"code": "insufficient_quota"}}', ProviderErrorKind.QUOTA),
    (400, "Your credit balance is too low", ProviderErrorKind.QUOTA),
    (404, '{"error": {"code": "model_not_found"}}', ProviderErrorKind.UNKNOWN_MODEL),
    (404, "model 'x' not found, try pulling it first", ProviderErrorKind.UNKNOWN_MODEL),
    (404, "<html>nginx</html>", ProviderErrorKind.REQUEST),
    (400, "prompt is too long: 200001 tokens > 200000 maximum", ProviderErrorKind.CONTEXT_TOO_LONG),
    (400, '{"error": {"type": "exceed_context_size_error"}}', ProviderErrorKind.CONTEXT_TOO_LONG),
    (400, "This model's maximum context length is 8192 tokens", ProviderErrorKind.CONTEXT_TOO_LONG),
    (413, "request_too_large", ProviderErrorKind.CONTEXT_TOO_LONG),
    (500, "the request exceeds the available context size", ProviderErrorKind.CONTEXT_TOO_LONG),
    (400, "registry.ollama.ai/library/gemma does not support tools", ProviderErrorKind.TOOLS_UNSUPPORTED),
    (404, "No endpoints found that support tool use.", ProviderErrorKind.TOOLS_UNSUPPORTED),
    (400, "messages: roles must alternate", ProviderErrorKind.REQUEST),
    (500, "oops", ProviderErrorKind.UNAVAILABLE),
    (503, "loading", ProviderErrorKind.OVERLOADED),
    (529, "Overloaded", ProviderErrorKind.OVERLOADED),
    (302, "", ProviderErrorKind.REQUEST),
]


@pytest.mark.parametrize(("status", "body", "kind"), KINDS, ids=lambda value: str(value)[:30])
def test_an_error_has_its_status_its_body_and_its_kind(status: int, body: str, kind: ProviderErrorKind) -> None:
    error = response_error(status, body)

    assert (error.status, error.body, error.kind) == (status, body, kind)
    assert error.message.startswith(f"Provider error ({status}): {body}")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Thu, 99 Jan 99999 00:00:10 GMT"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_retry_after_is_parsed_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert response_error(429, "slow", headers, now=60.0).retry_after == seconds


def test_a_secret_in_the_response_is_redacted() -> None:
    error = response_error(401, "Incorrect API key: sk-0123456789", secret="sk-0123456789")
    assert "sk-0123456789" not in error.message


def test_a_long_body_is_truncated() -> None:
    assert len(response_error(500, "x" * 10_000).body) == MAX_BODY + 1
