"""The reference is complete: every command, setting, route, event, tool and name is in it; the site can be built."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from fastapi.routing import APIRoute

import toolcrib
from scripts import cli_reference, reference
from tests.docs.blocks import ROOT
from toolcrib.api.openai import openai_routes
from toolcrib.api.websocket import chat_messages
from toolcrib.cli.main import command_line
from toolcrib.core.agents import AgentRules, ToolPermission
from toolcrib.core.events import DeltaType, EventType
from toolcrib.settings import Settings

REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return reference.expanded((REFERENCE / name).read_text(encoding="utf-8"))


def test_every_command_and_option_is_in_the_reference() -> None:
    result = page("cli.md")

    for words, command in cli_reference._commands(typer.main.get_command(command_line()), ("toolcrib",)):
        assert f"`{' '.join(words)}`" in result
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden and parameter.name != "help":
                assert f"`{parameter.opts[0]}`" in result


def test_every_setting_is_in_the_reference_with_a_description() -> None:
    result = page("settings.md")

    for name, field in Settings.model_fields.items():
        assert f"| `TOOLCRIB_{name.upper()}` |" in result
        assert field.description, f"{name} says nothing of itself"


def test_every_route_is_in_the_reference() -> None:
    result = page("http.md")

    document = reference.api()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"### `{method.upper()} {path}`" in result
    for path in ("/mcp", "/mcp/{workspace_id}", "/api/v1/workspaces/{workspace_id}/ws"):
        assert f"{path}`" in result


def test_no_route_is_hidden_from_the_openapi_description() -> None:
    app = reference.application()

    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    hidden = {route.path for route in routes if not route.include_in_schema}
    # OpenAI describes these itself.
    assert hidden == {route.path for route in openai_routes.router.routes if isinstance(route, APIRoute)}
    assert len(routes) > len(hidden)


def test_every_event_is_in_the_reference() -> None:
    result = page("events.md")

    for kind in (*EventType, *DeltaType):
        assert f"`chat:{kind}`" in result
    for kind, message in chat_messages.CHAT.items():
        assert f"`{kind}`" in result
        for name, field in message.model_fields.items():
            assert f"`{field.validation_alias or name}" in result


def test_every_tool_is_in_the_reference_with_its_arguments() -> None:
    result = page("tools.md")

    for tool in reference.built_in_tools():
        section = result.partition(f"### `{tool.name}`\n")[2].partition("\n### ")[0]
        assert tool.description in section
        assert all(f"| `{name}`" in section for name in tool.input_schema.get("properties", {}))


def test_every_field_of_an_agent_is_in_the_reference_with_a_description() -> None:
    result = page("agents.md")

    for name, field in (AgentRules.model_fields | ToolPermission.model_fields).items():
        assert f"| `{name}` |" in result
        assert field.description, f"{name} says nothing of itself"


def test_every_public_name_is_in_the_reference_with_a_description() -> None:
    result = page("python.md")

    for name in toolcrib._OFFERED:
        words = result.partition(f"## `{name}`\n")[2].strip().partition("\n")[0]
        assert re.match(r"[A-Z`]", words), f"{name} says nothing of itself"


@pytest.mark.long
def test_the_site_builds_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    """Builds strictly: a broken link fails the build."""
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert built.returncode == 0, built.stderr
    made = [path for kind in ("html", "css", "svg") for path in tmp_path.rglob(f"*.{kind}")]
    assert len(made) > 30
    loads = re.compile(r'(?:src|data)="(?:https?:)?//|<link[^>]+href="(?:https?:)?//|url\((?:https?:)?//|@import')
    assert [str(path) for path in made if loads.search(path.read_text(encoding="utf-8"))] == []
