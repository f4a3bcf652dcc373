"""The default model of a new directory, and how text from agents is printed."""

import io
from collections.abc import Mapping

import pytest

from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.client import ModelOut, StreamMessage
from toolcrib.core.errors import Misconfigured
from toolcrib.policy.agent_definition import parse_definition
from toolcrib.sdk.default_agent import ModelChoice, definition, named_by_environment, parse_choice, preferred


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (
            ["claude-opus-4-8", "claude-sonnet-4-5-20250929", "claude-sonnet-5-20261001", "claude-haiku-5"],
            "claude-sonnet-5-20261001",
        ),
        (["gpt-4o", "gpt-5.2", "gpt-5.10", "gpt-5.2-pro", "o3"], "gpt-5.10"),
        (["llama3.2:3b", "qwen3-coder:30b"], "qwen3-coder:30b"),
        (["something"], "something"),
    ],
)
def test_the_newest_model_of_the_middle_tier_is_preferred(names: list[str], chosen: str) -> None:
    models = [
        ModelOut(id=name, name=name, context_window=None, supports_tools=True, max_output_tokens=None) for name in names
    ]

    found = preferred(models)

    assert found is not None
    assert found.id == chosen


def test_a_model_without_tools_is_never_chosen() -> None:
    assert (
        preferred([ModelOut(id="gpt-5", name="", context_window=None, supports_tools=False, max_output_tokens=None)])
        is None
    )


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("https://models.example.com:443/", "https://models.example.com:443"),
    ],
)
def test_ollama_host_gives_the_base_url(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", host)

    named = named_by_environment()

    assert {provider: credentials.base_url for provider, credentials in named.items()} == {"ollama": address}


def test_a_choice_names_provider_and_model() -> None:
    assert parse_choice("openai-compatible/meta/llama") == ModelChoice("openai-compatible", "meta/llama")
    with pytest.raises(Misconfigured, match="PROVIDER/MODEL"):
        parse_choice("gpt-5")


def test_the_default_agent_is_reviewed_and_may_use_its_tools() -> None:
    rules = parse_definition(definition(ModelChoice("ollama", "it's: a #model")))

    assert (rules.provider, rules.model, rules.trust) == ("ollama", "it's: a #model", "review")
    assert rules.tool_permissions is not None
    assert (rules.tool_permissions["bash"].allowed, rules.tool_permissions["bash"].approve) == (True, "effect")


def heard(*messages: Mapping[str, object]) -> str:
    out = io.StringIO()
    printer = SessionPrinter(out, quiet=True)
    for one in messages:
        printer.show(StreamMessage.model_validate(one))
    return out.getvalue()


def delta(text: str, offset: int, attempt: int = 1) -> dict[str, object]:
    return {
        "type": "chat:text-delta",
        "payload": {"messageId": "m", "content": text, "offset": offset, "attempt": attempt},
    }


def test_text_is_printed_once_however_it_arrives() -> None:
    end = {"type": "chat:stream-end", "payload": {"messageId": "m", "content": "Hello, world."}}

    assert heard(delta("Hello", 0), delta("Hello, wo", 0), end) == "Hello, world.\n"
    assert heard(end) == "Hello, world.\n"


def test_text_from_an_agent_cannot_control_the_terminal() -> None:
    assert "\x1b" not in heard(delta("\x1b]0;owned\x07\x1b[2J", 0))


def test_a_call_that_never_started_is_named_above_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    printer = SessionPrinter(io.StringIO())
    denied = {"toolId": "t", "toolName": "bash", "status": "error", "result": "Denied."}
    printer.show(StreamMessage.model_validate({"type": "chat:tool-result", "payload": denied}))

    called, failed = capsys.readouterr().err.splitlines()
    assert called.endswith("bash")
    assert failed.endswith("Denied.")
