"""The tools that the official conformance suite expects of a server, created with our public tool API."""

from collections.abc import Callable
from typing import Any

from toolcrib import ToolContext, tool
from toolcrib.core.errors import ToolFailed
from toolcrib.core.paused_calls import Question
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.mcp.mcp_toolsets import arguments_by
from toolcrib.tools.tool import Tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAVE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
_IMAGE = {"type": "image", "mime_type": "image/png", "data": PIXEL}
_DOCUMENT = {"type": "resource", "uri": "test://embedded", "mime_type": "text/plain", "text": "embedded"}
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def conformance_tools() -> list[Tool]:
    named = {
        "test_simple_text": "This is a simple text response for testing.",
        "test_logging_tool": "Nothing is logged to clients.",
        "test_image_content": {"text": "", "media": [_IMAGE]},
        "test_audio_content": {"text": "", "media": [{"type": "audio", "mime_type": "audio/wav", "data": WAVE}]},
        "test_embedded_resource": {"text": "", "media": [_DOCUMENT]},
        "test_multiple_content_types": {"text": "Multiple content types test:", "media": [_IMAGE, _DOCUMENT]},
    }
    asking = {
        "test_input_required_result_elicitation": "user_name",
        "test_input_required_result_request_state": "confirm",
        "test_input_required_result_tampered_state": "confirm",
        "test_streaming_elicitation": "user_name",
    }
    return [
        *(_answering(name, result) for name, result in named.items()),
        *(_asking(name, field) for name, field in asking.items()),
        test_error_handling,
        test_tool_with_progress,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        _with_schema(),
        our_own_fault,
    ]


def _harmless(name: str | None = None) -> Callable[[Callable[..., Any]], Tool]:
    return tool(name=name, toolset="workspace", danger=Danger.SAFE, effects=lambda _: Effects(), idempotent=True)


def _answering(name: str, result: Any) -> Tool:
    async def answer() -> Any:
        """Answers with what the suite looks for."""
        return result

    return _harmless(name)(answer)


def _asking(name: str, field: str) -> Tool:
    schema = {"type": "boolean"} if field == "confirm" else {"type": "string"}

    async def ask(context: ToolContext) -> None:
        """Asks the person one thing."""
        context.asked.append(Question(field, "Please say it.", schema))

    return _harmless(name)(ask)


@_harmless()
async def test_error_handling() -> None:
    """Fails, as tools may."""
    raise ToolFailed("This tool intentionally returns an error for testing")


@_harmless()
async def our_own_fault() -> None:
    """Fails as no tool should."""
    raise RuntimeError("a secret of the server")


@_harmless()
async def test_tool_with_progress(context: ToolContext) -> str:
    """Says how far it is."""
    for share in ("0", "50", "100"):
        context.emit(f"{share} of 100")
    return "done"


@_harmless()
async def test_elicitation(message: str, context: ToolContext) -> None:
    """Asks the person two things.

    Args:
        message: What to say to them.
    """
    context.asked.append(Question("username", message, {"type": "string"}))
    context.asked.append(Question("email", "And where?", {"type": "string"}))


_DEFAULTS: dict[str, dict[str, Any]] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
_PLAIN = ["option1", "option2", "option3"]
_CHOICES: dict[str, dict[str, Any]] = {
    "untitledSingle": {"type": "string", "enum": _PLAIN},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}


@_harmless()
async def test_elicitation_sep1034_defaults(context: ToolContext) -> None:
    """Asks for what has defaults."""
    context.asked.extend(Question(name, f"What {name}?", schema) for name, schema in _DEFAULTS.items())


@_harmless()
async def test_elicitation_sep1330_enums(context: ToolContext) -> None:
    """Asks for choices."""
    context.asked.extend(Question(name, f"Which {name}?", schema) for name, schema in _CHOICES.items())


def _with_schema() -> Tool:
    async def answer(_: Any, __: ToolContext) -> str:
        return "fits"

    return Tool(
        name="json_schema_2020_12_tool",
        toolset="workspace",
        description="Tool with JSON Schema 2020-12 features",
        category=ToolCategory.FILE,
        danger=Danger.SAFE,
        arguments=arguments_by(_SCHEMA),
        effects=lambda _: Effects(),
        function=answer,
        checks_membership=False,
    )
