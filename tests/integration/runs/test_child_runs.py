"""Child runs: an agent gives a task to another agent, or to itself, and gets the answer as the result of its call."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.model_server import Answer, Received
from tests.integration.runs.conftest import RunFixture, opened_office, says, yes
from tests.integration.runs.test_durable import Died, at_work, ended
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.callers import Agent, SessionMode
from toolcrib.core.ids import ProcessId, RunId, SessionId, new_id
from toolcrib.core.paused_calls import ApprovalDecision, GrantRule, GrantScope
from toolcrib.core.runs import Run, RunEnding, RunState, RunWait
from toolcrib.storage.sessions import Session

TOOLS = ("read", "write", "ls", "run_agent")
GO = "Go."


def delegates(task: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "run_agent", {"task": task, **arguments}


def writes(path: str) -> tuple[str, dict[str, Any]]:
    return "write", {"path": path, "content": "x\n"}


async def office(run_fixture: RunFixture, **rules: Any) -> RunFixture:
    """A session whose agent may start child runs."""
    given = {"tool_permissions": {name: {"allowed": True} for name in TOOLS}, **rules}
    return await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, **given)


async def another_agent(run_fixture: RunFixture, **rules: Any) -> Agent:
    given = {
        "provider": "openai-compatible",
        "model": "gpt-fake",
        "trust": "autonomous",
        "context_window": 100_000,
        "tool_permissions": {name: {"allowed": True} for name in TOOLS},
    }
    agent = (await run_fixture.workspace.agent(**{**given, **rules})).agent
    assert agent is not None
    return agent


def plays(run_fixture: RunFixture, **turns: list[Answer]) -> None:
    """Let the model answer by the first message of each conversation, and by how often it has answered there."""

    def respond(request: Received) -> Answer:
        messages: list[dict[str, Any]] = request.body["messages"]
        [task, *_] = [str(one["content"]) for one in messages if one["role"] == "user"]
        answered = [one for one in messages if one["role"] == "assistant"]
        return turns[task.rstrip(".")][len(answered)]

    run_fixture.model.responder = respond


async def children(run_fixture: RunFixture, session_id: SessionId | None = None) -> list[Session]:
    found = await run_fixture.workspace.stores.sessions.page(
        run_fixture.tenant, before=None, limit=100, parent_id=session_id or run_fixture.session_id
    )
    return list(reversed(found))


async def runs_of(run_fixture: RunFixture, sessions: list[Session]) -> list[Run]:
    return [run for one in sessions for run in await run_fixture.runs.page(run_fixture.tenant, one.id)]


async def results(run_fixture: RunFixture, session_id: SessionId | None = None) -> list[tuple[str, bool]]:
    """What the model received of its calls, and whether these are errors."""
    messages = await run_fixture.runs.messages(run_fixture.tenant, session_id or run_fixture.session_id)
    ids = [call_id for one in messages for call_id in one.call_ids]
    calls = await run_fixture.runs.calls(run_fixture.tenant.workspace_id, ids)
    return [calls[call_id].result_text for call_id in ids]


async def test_answer_of_another_agent_is_the_result_of_the_call(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    agent = await another_agent(fresh)
    plays(
        fresh,
        Go=[says("", delegates("Count", agent=agent.name)), says("It says 3.")],
        Count=[says("", writes("/count.txt")), says("There are 3.")],
    )

    run = await fresh.send(GO)

    assert (run.state, run.end_reason) == (RunState.ENDED, RunEnding.DONE)
    [(text, failed)] = await results(fresh)
    result = json.loads(text)
    [session] = await children(fresh)
    assert not failed
    assert (result["text"], result["agent"], result["end_reason"]) == ("There are 3.", agent.name, "done")
    assert (result["session_id"], result["turns"]) == (str(session.id), 2)
    assert result["input_tokens"] > 0
    assert (session.agent_id, session.parent_session_id) == (agent.id, fresh.session_id)
    assert (fresh.workspace.project / "count.txt").read_text() == "x\n"
    about_the_call = [(kind, payload) for kind, payload in await fresh.events() if "toolId" in payload]
    assert [kind for kind, _ in about_the_call] == ["tool-start", "child-run", "tool-result"]
    assert about_the_call[1][1]["sessionId"] == str(session.id)
    ordinary = await fresh.workspace.stores.sessions.page(fresh.tenant, before=None, limit=100)
    assert session.id not in [one.id for one in ordinary]


async def test_run_waits_without_a_process_while_its_child_works(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    plays(fresh, Go=[says("", delegates("Count"))])
    run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))

    await fresh.advance(taken)

    waiting = await fresh.run(run.id)
    assert (waiting.state, waiting.waits_for) == (RunState.WAITING, RunWait.CHILD)
    assert (await fresh.events())[-1][1]["waitsFor"] == "child"
    [child] = await runs_of(fresh, await children(fresh))
    assert (child.state, child.parent_run_id, child.prompt) == (RunState.READY, run.id, "Count")
    assert await fresh.workspace.engine.paused_calls.list(fresh.tenant) == []


async def test_two_children_of_one_turn_work_at_the_same_time(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    plays(
        fresh,
        Go=[says("", delegates("One"), delegates("Two")), says("Both.")],
        One=[says("1")],
        Two=[says("2")],
    )
    run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))
    await fresh.advance(taken)
    both = await fresh.take(ProcessId(new_id()))
    assert sorted(one.prompt for one in both) == ["One", "Two"]

    await fresh.advance(both[0])
    await fresh.carry_on(process=ProcessId(new_id()))

    assert (await fresh.run(run.id)).end_reason is RunEnding.DONE
    assert [json.loads(text)["text"] for text, _ in await results(fresh)] == ["1", "2"]


async def test_permissions_of_a_child_are_never_wider_than_its_parents(run_fixture: RunFixture) -> None:
    fresh = await office(
        run_fixture,
        tool_permissions={
            "run_agent": {"allowed": True},
            "read": {"allowed": True},
            "write": {"allowed": True, "paths": ["src/**"]},
        },
    )
    agent = await another_agent(
        fresh,
        tool_permissions={
            "read": {"allowed": True},
            "rm": {"allowed": True},
            "write": {"allowed": True, "paths": ["*.txt"]},
        },
    )
    plays(
        fresh,
        Go=[says("", delegates("Try", agent=str(agent.id), tools=["write", "rm", "bash"])), says("Tried.")],
        Try=[
            says("", writes("/src/a.txt"), writes("/src/a.py"), writes("/b.txt"), ("rm", {"path": "/src/a.txt"})),
            says("", ("read", {"path": "/src/a.txt"})),
            says("Done."),
        ],
    )

    await fresh.send(GO)

    [session] = await children(fresh)
    outcomes = await results(fresh, session.id)
    assert [failed for _, failed in outcomes] == [False, True, True, True, True]
    assert "its paths are *.txt and src/**" in outcomes[1][0]
    assert (fresh.workspace.project / "src/a.txt").exists()
    assert not (fresh.workspace.project / "b.txt").exists()
    offered = {tool["function"]["name"] for tool in fresh.model.received[1].body["tools"]}
    assert offered == {"write"}


async def test_child_of_a_read_only_agent_cannot_write(run_fixture: RunFixture) -> None:
    """The owner makes the parent read-only while its child works: this holds from the child's next call on."""
    fresh = await office(run_fixture)
    agent = await another_agent(fresh)
    plays(
        fresh,
        Go=[says("", delegates("Try", agent=agent.name)), says("Tried.")],
        Try=[says("", writes("/a.txt")), says("Done.")],
    )
    await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))
    await fresh.advance(taken)
    agents = fresh.workspace.stores.agents
    stored = await agents.get(fresh.tenant, fresh.agent.id)
    read_only = "provider: openai-compatible\nmodel: gpt-fake\ncontext_window: 100000\n"
    await agents.update(fresh.tenant, stored.id, definition=read_only)

    await fresh.carry_on()

    [session] = await children(fresh)
    [(text, failed)] = await results(fresh, session.id)
    assert failed, text
    assert not (fresh.workspace.project / "a.txt").exists()


async def test_child_asks_as_often_as_its_parent_and_saved_approvals_of_others_do_not_count(
    run_fixture: RunFixture,
) -> None:
    fresh = await office(run_fixture, trust="guided")
    agent = await another_agent(fresh, trust="autonomous")
    plays(
        fresh,
        Go=[
            says("", writes("/first.txt")),
            says("", delegates("Write", trust="autonomous"), delegates("Write", agent=agent.name)),
            says("Done."),
        ],
        Write=[says("", writes("/second.txt")), says("Written.")],
    )
    waiting = await fresh.send(GO)
    # A person allows this agent to write in this session, which covers no other session.
    rule = GrantRule(("write",))
    await fresh.decide(ApprovalDecision(approved=True, scope=GrantScope.SESSION, rule=rule))

    await fresh.carry_on()

    assert (await fresh.run(waiting.id)).waits_for is RunWait.CHILD
    [session] = await children(fresh)
    assert [run.waits_for for run in await runs_of(fresh, [session])] == [RunWait.PERSON]
    [pause] = await fresh.workspace.engine.paused_calls.list(fresh.tenant)
    assert (pause.session_id, pause.agent_name) == (session.id, agent.name)
    await fresh.workspace.engine.paused_calls.decide(fresh.tenant, pause.id, yes(), via="test")
    await fresh.carry_on()

    assert (await fresh.run(waiting.id)).end_reason is RunEnding.DONE
    [_, (refused, failed), (text, _)] = await results(fresh)
    assert failed
    assert "guided" in refused
    assert json.loads(text)["text"] == "Written."


async def test_supervised_agent_starts_a_child_once_after_approval(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture, trust="supervised")
    plays(fresh, Go=[says("", delegates("Say")), says("Done.")], Say=[says("Said.")])
    waiting = await fresh.send(GO)
    assert await children(fresh) == []

    await fresh.decide(yes())
    await fresh.carry_on()

    assert (await fresh.run(waiting.id)).end_reason is RunEnding.DONE
    assert len(await children(fresh)) == 1
    assert [json.loads(text)["text"] for text, _ in await results(fresh)] == ["Said."]


async def test_child_of_a_planning_session_plans_only(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture, mode=SessionMode.PLAN)
    plays(fresh, Go=[says("", delegates("Try")), says("Done.")], Try=[says("", writes("/a.txt")), says("I cannot.")])

    await fresh.send(GO)

    [session] = await children(fresh)
    [(text, failed)] = await results(fresh, session.id)
    assert failed
    assert "plan mode" in text


async def test_limits_are_errors_that_the_model_can_act_on(run_fixture: RunFixture) -> None:
    settings = run_fixture.workspace.settings.model_copy(
        update={"max_child_run_depth": 2, "max_child_runs_at_once": 2, "max_child_runs": 3}
    )
    run_fixture = replace(run_fixture, workspace=run_fixture.workspace.with_engine(settings))
    fresh = await office(run_fixture)
    plays(
        fresh,
        Go=[
            says("", delegates("Leaf"), delegates("Leaf"), delegates("Leaf")),
            says("", delegates("Root", agent="nobody")),
            says("", delegates("Deep")),
            says("", delegates("Leaf")),
            says("Done."),
        ],
        Leaf=[says("Leaf.")],
        Deep=[says("", delegates("Leaf")), says("Deep.")],
    )

    run = await fresh.send(GO)

    assert run.end_reason is RunEnding.DONE
    texts = [text for text, failed in await results(fresh) if failed]
    assert "2 child runs of this session are at work" in texts[0]
    assert "There is no agent `nobody`" in texts[1]
    assert "has had 3 child runs" in texts[2]


async def test_depth_is_limited(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    again = [says("", delegates("Again")), says("Back.")]
    plays(fresh, Go=[says("", delegates("Again")), says("Done.")], Again=again)

    run = await fresh.send(GO)

    assert run.end_reason is RunEnding.DONE
    session_id, depth = fresh.session_id, 0
    while below := await children(fresh, session_id):
        [session] = below
        session_id, depth = session.id, depth + 1
    assert depth == 3
    [(text, failed)] = await results(fresh, session_id)
    assert failed
    assert "3 is the limit" in text


async def test_child_uses_the_turns_of_its_parent(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture, max_turns=4)
    plays(
        fresh,
        Go=[says("", delegates("Look")), says("This must be the end.")],
        Look=[says("", ("ls", {"path": "/"})) for _ in range(3)] + [says("I had to stop.")],
    )

    run = await fresh.send(GO)

    [child] = await runs_of(fresh, await children(fresh))
    assert (child.max_turns, child.turns, child.end_reason) == (3, 4, RunEnding.TURN_LIMIT)
    assert (run.turns, run.child_turns, run.end_reason) == (2, 4, RunEnding.TURN_LIMIT)
    [(text, failed)] = await results(fresh)
    assert not failed
    assert json.loads(text)["end_reason"] == "turn-limit"


async def test_child_uses_the_time_of_its_parent(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture, run_timeout=60)
    plays(fresh, Go=[says("", delegates("Look")), says("Never.")], Look=[says("Seen.")])
    run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))
    await fresh.advance(taken)
    [child] = await runs_of(fresh, await children(fresh))
    assert child.max_active_ms is not None
    assert 0 < child.max_active_ms <= 60_000
    async with fresh.workspace.database.as_system() as connection:
        # As if it had worked for a minute.
        await connection.execute("update toolcrib.runs set active_ms = 60001 where id = %s", (child.id,))

    await fresh.carry_on()

    assert [(await fresh.run(id_)).end_reason for id_ in (child.id, run.id)] == [RunEnding.DEADLINE] * 2
    assert await fresh.is_complete()


async def test_child_that_fails_or_is_cancelled_is_an_error_of_the_call(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    refusal = Answer((b'{"error": {"message": "No.", "type": "invalid_request_error"}}',), status=400)
    plays(
        fresh,
        Go=[says("", delegates("Fail"), delegates("Stop")), says("Both failed.")],
        Fail=[replace(refusal, content_type="application/json")],
        Stop=[says("Never.")],
    )
    run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))
    await fresh.advance(taken)
    _, stopped = await runs_of(fresh, await children(fresh))
    await fresh.runs.cancel(fresh.tenant, stopped.id)

    await fresh.carry_on()

    assert (await fresh.run(run.id)).end_reason is RunEnding.DONE
    [(failure, one), (cancelled, other)] = await results(fresh)
    assert one
    assert other
    assert "ended without an answer (failed)" in failure
    assert "ended without an answer (cancelled)" in cancelled


async def test_deleting_the_session_of_a_child_ends_the_call(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    plays(fresh, Go=[says("", delegates("Look")), says("It is gone.")])
    run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))
    await fresh.advance(taken)
    [session] = await children(fresh)

    await fresh.workspace.stores.sessions.delete(fresh.tenant, session.id)
    await fresh.carry_on()

    assert (await fresh.run(run.id)).end_reason is RunEnding.DONE
    assert await fresh.is_complete()


async def test_cancelling_ends_all_descendants_within_two_seconds(run_fixture: RunFixture) -> None:
    """One child waits for its own child, which streams; another waits for a person."""
    fresh = await office(run_fixture)
    careful = await another_agent(fresh, trust="guided")
    whole = says("These words were shown. These were not.")
    plays(
        fresh,
        Go=[says("", delegates("Deep"), delegates("Ask", agent=careful.name))],
        Deep=[says("", delegates("Hang"))],
        Hang=[Answer(whole.pieces[:3], hang=True)],
        Ask=[says("", writes("/a.txt"))],
    )
    took = []
    async with at_work(fresh) as signal:
        for _ in range(TRIES):
            session = await fresh.workspace.stores.sessions.create(fresh.tenant, agent_id=fresh.agent.id)
            run = await fresh.runs.submit(fresh.tenant, session.id, GO, via="test")
            signal.notify(run.workspace_id, [run.id])
            async with asyncio.timeout(PATIENCE):
                while await _states(fresh, run.id) != ["running", "waiting", "waiting"]:
                    await fresh.run(run.id)
            began = time.monotonic()
            descendants = await fresh.runs.children(fresh.tenant, run.id)
            await fresh.runs.cancel(fresh.tenant, run.id)
            everyone = [await ended(fresh, id_) for id_ in (run.id, *descendants)]
            took.append(time.monotonic() - began)
            assert {one.end_reason for one in everyone} == {RunEnding.CANCELLED}
            assert await fresh.workspace.engine.paused_calls.list(fresh.tenant) == []
            if took[-1] < 2:
                break

    assert min(took) < 2


async def _states(run_fixture: RunFixture, run_id: RunId) -> list[str]:
    found = [await run_fixture.run(id_) for id_ in await run_fixture.runs.children(run_fixture.tenant, run_id)]
    return sorted(run.state for run in found)


async def test_run_and_child_killed_at_every_step_end_once(run_fixture: RunFixture) -> None:
    """A process dies after every commit in turn, of the parent or the child; another one continues."""
    for dies_after in range(1, 40):
        fresh = await office(run_fixture)
        path = f"/{dies_after}.txt"
        plays(
            fresh,
            Go=[says("", delegates("Work")), says("Done.")],
            Work=[says("", writes(path)), says("Worked.")],
        )
        run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
        died = await _until_death(fresh, dies_after)
        await fresh.carry_on()

        assert (await fresh.run(run.id)).end_reason is RunEnding.DONE, dies_after
        [child] = await runs_of(fresh, await children(fresh))
        assert (child.end_reason, child.turns) == (RunEnding.DONE, 2)
        assert [json.loads(text)["text"] for text, _ in await results(fresh)] == ["Worked."]
        assert [one.content for one in await fresh.messages()] == [GO, "", "Done."]
        assert (fresh.workspace.project / path[1:]).read_text() == "x\n"
        assert await fresh.is_complete()
        if not died:
            break
    assert 8 < dies_after < 39


async def _until_death(run_fixture: RunFixture, steps: int) -> bool:
    """Execute runs in a process that dies after so many commits. Returns False if they ended before."""
    doomed = replace(run_fixture, workspace=run_fixture.workspace.with_engine())
    engine, done = doomed.workspace.engine, 0

    def dying(commit: Any) -> Any:
        async def committed(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            result = await commit(*args, **kwargs)
            done += 1
            if done >= steps:
                raise Died
            return result

        return committed

    runs = engine.stores.runs
    for name in ("save_turn", "save_waiting", "end", "attempt"):
        setattr(runs, name, dying(getattr(runs, name)))
    advance = doomed.advance_with(execute=dying(engine.executor.execute))
    try:
        while taken := await doomed.take(ProcessId(new_id())):
            for one in taken:
                await advance(one)
    except Died:
        return True
    return False


async def test_undoing_a_run_undoes_its_child_runs(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    plays(
        fresh,
        Go=[says("", writes("/own.txt"), delegates("Work")), says("Done.")],
        Work=[says("", writes("/childs.txt")), says("Worked.")],
    )
    run = await fresh.send(GO)
    assert (fresh.workspace.project / "childs.txt").exists()

    undone = await fresh.workspace.result("undo", run_id=str(run.id))

    assert undone["total_changes"] == 2
    assert not (fresh.workspace.project / "own.txt").exists()
    assert not (fresh.workspace.project / "childs.txt").exists()
    again = await fresh.workspace.result("undo", calls=[undone["call_id"]])
    assert again["total_conflicts"] == 0
    assert (fresh.workspace.project / "childs.txt").exists()


async def test_undoing_the_last_run_undoes_the_run_that_people_see(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    plays(
        fresh,
        Go=[says("", writes("/own.txt")), says("", delegates("Work")), says("Done.")],
        Work=[says("", delegates("Deep")), says("Worked.")],
        Deep=[says("", writes("/deep.txt")), says("Deep.")],
    )
    run = await fresh.send(GO)

    undone = await fresh.workspace.result("undo", last="run")

    assert undone["undone"] == {"run_id": str(run.id)}
    assert not list(fresh.workspace.project.glob("*.txt"))
    with pytest.raises(AssertionError, match="Nothing to undo"):
        await fresh.workspace.result("undo", last="run")
    await fresh.workspace.result("undo", last="undo")
    undone = await fresh.workspace.result("undo", last="session")
    assert undone["undone"] == {"session_id": str(fresh.session_id)}
    assert not list(fresh.workspace.project.glob("*.txt"))


async def test_what_is_left_of_a_child_run_after_its_undo_is_the_last_run(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture)
    plays(
        fresh,
        Go=[says("", writes("/own.txt")), says("", delegates("Work")), says("Done.")],
        Work=[says("", writes("/childs.txt")), says("Worked.")],
    )
    run = await fresh.send(GO)
    [child] = await runs_of(fresh, await children(fresh))
    await fresh.workspace.result("undo", run_id=str(child.id))

    undone = await fresh.workspace.result("undo", last="run")

    assert undone["undone"] == {"run_id": str(run.id)}
    assert (undone["total_changes"], undone["total_conflicts"]) == (1, 0)
    assert not (fresh.workspace.project / "own.txt").exists()


async def test_changes_of_a_child_run_are_reviewed_in_the_session_that_people_see(run_fixture: RunFixture) -> None:
    fresh = await office(run_fixture, trust="review")
    agent = await another_agent(fresh)
    plays(
        fresh,
        Go=[says("", delegates("Work", agent=agent.name)), says("Done."), says("I see.")],
        Work=[says("", writes("/a.txt"), writes("/b.txt")), says("Worked.")],
    )
    await fresh.send(GO)
    [session] = await children(fresh)

    opened = [payload for kind, payload in await fresh.events() if kind == "review"]
    assert [(one["state"], one["files"]) for one in opened] == [("open", 2)]
    shown = await fresh.workspace.result("review", session_id=str(fresh.session_id))
    assert [one["path"] for one in shown["files"]] == ["/a.txt", "/b.txt"]
    person = replace(fresh.workspace.caller, session_id=fresh.session_id)
    kept, reverted = (
        {"path": one["path"], "version": one["version"], "decision": decision}
        for one, decision in zip(shown["files"], ("keep", "revert"), strict=True)
    )
    outcome = await fresh.workspace.call("review_decide", person, decisions=[kept, reverted])
    assert outcome.succeeded, outcome.error
    assert (fresh.workspace.project / "a.txt").exists()
    assert not (fresh.workspace.project / "b.txt").exists()
    for id_ in (fresh.session_id, session.id):
        assert (await fresh.workspace.result("review", session_id=str(id_)))["total"] == 0
    await fresh.send(GO)
    assert "reverted /b.txt" in fresh.model_input()[-1]["content"]


async def test_child_run_that_is_to_be_reviewed_is_announced_in_an_autonomous_session(run_fixture: RunFixture) -> None:
    """What it deleted stays in the trash until then, too."""
    fresh = await office(run_fixture)
    plays(
        fresh,
        Go=[says("", writes("/own.txt"), delegates("Work", trust="review")), says("Done.")],
        Work=[says("", writes("/childs.txt")), says("Worked.")],
    )

    await fresh.send(GO)

    opened = [payload for kind, payload in await fresh.events() if kind == "review"]
    assert [(one["state"], one["files"]) for one in opened][-1] == ("open", 1)
    async with fresh.workspace.database.as_system() as connection:
        cursor = await connection.execute(
            """
            select v.path, toolcrib.awaits_review(v.workspace_id, v.change_set_id, v.file_id)
            from toolcrib.versions v where v.workspace_id = %s and v.path like '%%.txt' order by 1
            """,
            (fresh.tenant.workspace_id,),
        )
        assert await cursor.fetchall() == [("/childs.txt", True), ("/own.txt", False)]


async def test_run_that_waits_for_a_person_and_a_child_says_that_it_waits_for_the_person(
    run_fixture: RunFixture,
) -> None:
    fresh = await office(run_fixture, trust="guided")
    plays(fresh, Go=[says("", writes("/a.txt"), delegates("Say")), says("Done.")], Say=[says("Said.")])
    run = await fresh.runs.submit(fresh.tenant, fresh.session_id, GO, via="test")
    [taken] = await fresh.take(ProcessId(new_id()))

    await fresh.advance(taken)

    assert (await fresh.run(run.id)).waits_for is RunWait.PERSON
    await fresh.decide(yes())
    [taken] = [one for one in await fresh.take(ProcessId(new_id())) if one.id == run.id]
    await fresh.advance(taken)
    assert (await fresh.run(run.id)).waits_for is RunWait.CHILD
