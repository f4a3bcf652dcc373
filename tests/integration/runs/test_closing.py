"""A server that is closed in the middle of a call: nobody is told an error, and the next server goes on."""

import asyncio

from tests.integration.runs.conftest import RunFixture, opened_office, says
from tests.wait_until import PATIENCE
from toolcrib.core.events import Delta, EventType
from toolcrib.core.runs import RunEnding, RunState
from toolcrib.wiring.server import services

# Outlives the first server, and ends at once in the second one.
COMMAND = "echo begun; test -e go.txt || sleep 600; echo once >> once.txt"


async def test_closing_a_server_in_the_middle_of_a_command_is_no_error_of_the_command(run_fixture: RunFixture) -> None:
    allowed = {"bash": {"allowed": True}}
    run_fixture = await opened_office(
        run_fixture.workspace, run_fixture.model, run_fixture.providers, tool_permissions=allowed
    )
    settings = run_fixture.workspace.settings.model_copy(update={"allowed_private_model_hosts": "*"})
    run_fixture.model.say(says("", ("bash", {"command": COMMAND})))
    tenant, session_id = run_fixture.tenant, run_fixture.session_id

    async with services(settings, binds_logins=True) as first:
        listening = first.live.subscribe(tenant, session_id, after=0)
        async with listening as subscription, asyncio.timeout(PATIENCE):
            run = await first.run_service.submit(tenant, session_id, "Go.", via="test")
            async for item in subscription:
                if isinstance(item, Delta) and "begun" in item.text:
                    break
                assert isinstance(item, Delta) or item.type is not EventType.TOOL_RESULT, item.payload

    assert (await run_fixture.run(run.id)).state is RunState.READY
    assert [payload for kind, payload in await run_fixture.events() if kind == "tool-result"] == []

    (run_fixture.workspace.project / "go.txt").touch()
    run_fixture.model.say(says("Done."))
    async with services(settings, binds_logins=True):
        async with asyncio.timeout(PATIENCE):
            while (done := await run_fixture.run(run.id)).state is not RunState.ENDED:
                pass

    assert done.end_reason is RunEnding.DONE
    assert "Internal server error" not in str(run_fixture.model_input())
    assert (run_fixture.workspace.project / "once.txt").read_text() == "once\n"


async def test_server_of_a_command_that_only_looks_wakes_no_run_of_a_closed_one(run_fixture: RunFixture) -> None:
    settings = run_fixture.workspace.settings.model_copy(update={"allowed_private_model_hosts": "*"})
    tenant = run_fixture.tenant
    left = await run_fixture.runs.submit(tenant, run_fixture.session_id, "Left behind.", via="test")
    session = await run_fixture.workspace.stores.sessions.create(tenant, agent_id=run_fixture.agent.id)

    async with services(settings, binds_logins=True, resumes=False) as looking:
        run_fixture.model.say(says("Asked for now."))
        run = await looking.run_service.submit(tenant, session.id, "Now.", via="test")
        async with asyncio.timeout(PATIENCE):
            while (done := await run_fixture.run(run.id)).state is not RunState.ENDED:
                pass

    assert done.end_reason is RunEnding.DONE
    assert (await run_fixture.run(left.id)).state is RunState.READY
    assert [one["content"] for one in run_fixture.model_input() if one["role"] == "user"] == ["Now."]
