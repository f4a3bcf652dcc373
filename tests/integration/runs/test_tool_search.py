"""More tools than a model is shown at once: it finds them by searching, on every wire."""

import itertools
import json
from typing import Any

import pytest

from tests.fakes import wires
from tests.fakes.model_server import KEY, Answer, ModelServer
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.integration.conftest import WorkspaceFixture
from tests.integration.providers.conftest import FORMATS, MODELS, PATHS
from tests.integration.runs.conftest import RunFixture, opened_office, says, yes
from toolcrib import Danger, tool
from toolcrib.core.ids import new_id
from toolcrib.core.model_stream import FinishReason
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import RunEnding, RunState
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.storage.users import ActingUser
from toolcrib.tools.tool import Tool

TOPICS = ("invoice", "ticket", "calendar", "contact", "shipment", "payroll", "contract", "warehouse", "survey", "badge")
VERBS = ("create", "list", "delete", "export", "rename", "archive")


def added(verb: str, topic: str) -> Tool:
    async def act(name: str) -> str:
        return f"{verb} {topic} {name}: done"

    act.__doc__ = f"{verb.capitalize()} the {topic} with this name in the office system."
    danger = Danger.DANGEROUS if verb == "delete" else Danger.SAFE
    return tool(name=f"{topic}_{verb}", danger=danger)(act)


SIXTY = tuple(added(verb, topic) for topic in TOPICS for verb in VERBS)
BUILT_IN = ("read", "write", "edit", "ls")
ALLOWED = {name: {"allowed": True} for name in (*BUILT_IN, *(one.name for one in SIXTY))}


async def crowded(
    workspace: WorkspaceFixture, server: ModelServer, providers: ProviderRegistry, /, **rules: Any
) -> RunFixture:
    there = workspace.with_engine(tools=SIXTY)
    return await opened_office(there, server, providers, **{"tool_permissions": ALLOWED, **rules})


def offered(fixture: RunFixture, request: int = -1) -> list[str]:
    return [one["function"]["name"] for one in fixture.model.received[request].body["tools"]]


SHOWN = ["edit", "ls", "read", "read_result", "tool_search", "write"]


@pytest.mark.parametrize(
    ("provider", "wire"),
    [
        ("openai-compatible", wires.chat_completions),
        ("openai", wires.responses),
        ("anthropic", wires.anthropic),
        ("gemini", wires.gemini),
        ("ollama", wires.ollama),
    ],
)
async def test_found_tool_is_in_the_next_request_at_the_end(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry, provider: str, wire: Any
) -> None:
    name = MODELS.get(provider, "gpt-fake")
    fixture = await crowded(workspace, model, providers, provider=provider, model=name)
    await workspace.stores.access.store(
        ActingUser(workspace.caller.user_id),
        provider,
        ProviderCredentials(KEY, f"{model.url}{PATHS.get(provider, '/v1')}"),
    )

    def turn(text: str, *calls: tuple[str, dict[str, Any]]) -> Answer:
        made = tuple(SceneCall(f"call_{new_id().hex[:20]}", called, json.dumps(args)) for called, args in calls)
        reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        answer = Answer(tuple(wire(Scene(text=text, calls=made, reason=reason), name)))
        return answer if provider != "ollama" else Answer(answer.pieces, content_type="application/x-ndjson")

    run = await fixture.send(
        "Archive the survey.",
        turn("", ("tool_search", {"query": "archive a survey", "max_results": 2})),
        turn("", ("survey_archive", {"name": "May"})),
        turn("", ("tool_search", {"query": "invoice_list", "max_results": 1})),
        turn("Done."),
    )

    assert (run.state, run.end_reason) == (RunState.ENDED, RunEnding.DONE)
    bodies = [
        one.body for one in model.received if "messages" in one.body or "input" in one.body or "contents" in one.body
    ]
    definitions = [_definitions(FORMATS.get(provider, "openai"), body) for body in bodies[-4:]]
    names = [[_name(one) for one in tools] for tools in definitions]
    assert sorted(names[0]) == SHOWN
    assert len(names[1]) == len(SHOWN) + 2
    assert names[1][len(SHOWN)] == "survey_archive"
    assert names[3][-1] == "invoice_list"
    # The beginning of each request is that of the one before, so that providers can cache it.
    for earlier, later in itertools.pairwise(definitions):
        assert later[: len(earlier)] == earlier
    prompts = {
        json.dumps(
            body.get("system") or body.get("systemInstruction") or body.get("instructions") or body["messages"][0]
        )
        for body in bodies[-4:]
    }
    assert len({prompt.replace(', "cache_control": {"type": "ephemeral"}', "") for prompt in prompts}) == 1
    assert "custom (60)" in prompts.pop()
    assert "archive survey May: done" in json.dumps(bodies[-2])


def _definitions(wire: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    found = body["tools"][0]["functionDeclarations"] if wire == "gemini" else body["tools"]
    return [{key: value for key, value in one.items() if key != "cache_control"} for one in found]


def _name(definition: dict[str, Any]) -> str:
    return str(definition.get("name") or definition["function"]["name"])


async def test_forty_tools_are_all_offered(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    forty = dict(list(ALLOWED.items())[:40])
    fixture = await crowded(workspace, model, providers, tool_permissions=forty)
    await fixture.send("Go.", says("Done."))

    assert sorted(offered(fixture)) == sorted(forty)
    assert ", and no others:" in fixture.model_input()[0]["content"]


async def test_found_tools_stay_after_another_process_continues_and_in_later_runs(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    fixture = await crowded(workspace, model, providers, trust="guided")
    search, delete = ("tool_search", {"query": "badge delete", "max_results": 1}), ("badge_delete", {"name": "x"})
    run = await fixture.send("Delete the badge.", says("", search), says("", delete))
    assert run.state is RunState.WAITING

    # Nothing is left in memory: another engine loads the run.
    fixture.workspace = fixture.workspace.with_engine(tools=SIXTY)
    await fixture.decide(yes())
    fixture.model.say(says("Deleted."))
    await fixture.carry_on()
    assert offered(fixture)[-1] == "badge_delete"
    assert "delete badge x: done" in fixture.model_input()[-1]["content"]

    await fixture.send("Thanks.", says("You are welcome."))
    assert offered(fixture)[-1] == "badge_delete"


async def test_gate_judges_a_tool_that_was_not_found_yet_like_any_other(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    without = {name: one for name, one in ALLOWED.items() if name != "payroll_list"}
    fixture = await crowded(workspace, model, providers, trust="guided", tool_permissions=without)

    run = await fixture.send(
        "Go.",
        says("", ("payroll_export", {"name": "May"}), ("payroll_list", {"name": "May"})),
        says("", ("payroll_delete", {"name": "May"})),
    )

    allowed, denied = (one["content"] for one in fixture.model_input()[-2:])
    assert allowed == "export payroll May: done"
    assert "does not have the toolset `custom` of `payroll_list`" in denied
    assert run.state is RunState.WAITING, "a dangerous one is asked about"


async def test_search_finds_only_what_the_agent_may_use(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    without = {name: one for name, one in ALLOWED.items() if not name.startswith("payroll")}
    fixture = await crowded(workspace, model, providers, tool_permissions=without)
    await fixture.send("Go.", says("", ("tool_search", {"query": "payroll", "max_results": 20})), says("None."))

    result = json.loads(fixture.model_input()[-1]["content"])
    assert result == {"note": "No tool matches. Try other words.", "tools": [], "searched": 54}


async def test_owner_may_deny_the_search_and_then_all_tools_are_offered(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    fixture = await crowded(
        workspace, model, providers, tool_permissions={**ALLOWED, "tool_search": {"allowed": False}}
    )
    await fixture.send("Go.", says("Done."))

    assert sorted(offered(fixture)) == sorted(ALLOWED)
