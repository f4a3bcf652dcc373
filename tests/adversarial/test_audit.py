"""The audit log has one record for every call, and ``toolcrib audit verify`` detects tampering."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.databases import DatabaseUrls, migrated_database, new_database, urls_of
from tests.faults.processes import Ended, run_command
from tests.integration.conftest import WorkspaceFixture, new_caller, new_person
from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import Agent
from toolcrib.core.errors import Forbidden, Superseded
from toolcrib.core.ids import AgentId, CallId, new_id
from toolcrib.core.paused_calls import ApprovalDecision
from toolcrib.core.tool_calls import Danger
from toolcrib.gate.audit_seals import AuditSealer
from toolcrib.gate.audit_verification import verify
from toolcrib.settings import Settings
from toolcrib.storage.audit import AuditSealStore
from toolcrib.storage.database import Database
from toolcrib.tools.tool import tool
from toolcrib.wiring.server import audit_seal_key, audit_sealer, audit_verifier
from toolcrib.wiring.tool_runtime import Stores, assemble

pytestmark = pytest.mark.xdist_group("audit log")


@dataclass(frozen=True)
class AuditLogFixture(WorkspaceFixture):
    """An audit log that only this test writes: a database has one for all its workspaces."""

    urls: DatabaseUrls

    @property
    def sealer(self) -> AuditSealer:
        return audit_sealer(self.settings, self.stores)

    async def filled(self, *, seals: int = 3, each: int = 2) -> None:
        """Write seals with some calls under each."""
        for _ in range(seals):
            for _ in range(each):
                await self.call("file_info", path="/")
            assert await self.sealer.seal() == each

    def behind_our_back(self, *statements: str) -> None:
        """Run SQL as a superuser of the database."""
        with psycopg.connect(self.urls.owner, options="-c search_path=toolcrib") as connection:
            for statement in statements:
                done = connection.execute(statement.encode())
                assert done.rowcount != 0, f"That changed nothing: {statement}"

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls.owner, options="-c search_path=toolcrib") as connection:
            return connection.execute(query.encode()).fetchall()

    def verified(self, *options: str, key: str | None = None) -> Ended:
        return self.audit("verify", *options, key=key)

    def audit(self, *arguments: str, key: str | None = None) -> Ended:
        """Run the real command."""
        environment = {
            "TOOLCRIB_DATABASE_URL": self.urls.app,
            "TOOLCRIB_SYSTEM_DATABASE_URL": self.urls.system,
            "TOOLCRIB_JWT_SECRET": self.settings.jwt_secret.get_secret_value(),
            "TOOLCRIB_AUDIT_SEAL_KEY": key or self.settings.audit_seal_key.get_secret_value(),
            "TOOLCRIB_DATA_DIR": str(self.settings.data_dir),
        }
        return run_command("audit", *arguments, environment=environment, scratch=self.settings.data_dir)


@pytest.fixture(scope="module")
def template() -> Iterator[str]:
    with migrated_database() as name:
        yield name


@pytest.fixture
async def audit_log(template: str, settings: Settings) -> AsyncIterator[AuditLogFixture]:
    settings.data_dir.mkdir()
    with new_database(template) as name:
        urls = urls_of(name)
        settings = settings.model_copy(
            update={"database_url": urls.app, "system_database_url": urls.system, "pool_size": 4}
        )
        async with Database.open(urls.app, urls.system, pool_size=4) as database:
            engine = assemble(settings, database, tools=[broken])
            yield AuditLogFixture(engine, await new_caller(engine), urls)


@tool(danger=Danger.SAFE)
def broken() -> None:
    """Fail by an internal error."""
    raise RuntimeError("a fault of our own")


# An intact log


async def test_intact_log_is_verified(audit_log: AuditLogFixture) -> None:
    await audit_log.filled()

    ended = audit_log.verified()

    assert ended == Ended(0, "Audit log verified: 6 records in 3 seals.\n")


async def test_stopping_sealer_seals_what_was_written_since(audit_log: AuditLogFixture) -> None:
    at_work = asyncio.create_task(audit_log.sealer.run(3600))
    await audit_log.call("file_info", path="/")

    at_work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await at_work

    assert audit_log.verified().said.startswith("Audit log verified: 1 record")
    assert audit_log.rows("select sum(record_count) from audit_seals") == [(1,)]


async def test_records_that_are_not_sealed_yet_are_counted_and_reported(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)
    await audit_log.call("file_info", path="/")
    await audit_log.call("file_info", path="/")

    words, facts = audit_log.verified(), audit_log.verified("--json")

    assert words.status == facts.status == 0
    assert "2 records are not sealed yet and were not verified." in words.said
    assert json.loads(facts.said) == {
        "whole": True, "seals": 1, "sealed_records": 0, "unsealed_records": 2,
        "problems": [], "since": 1, "restores": [],
    }  # fmt: skip


async def test_empty_log_is_verified(audit_log: AuditLogFixture) -> None:
    assert audit_log.verified().status == 0


async def test_another_key_does_not_match(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)

    ended = audit_log.verified(key=secrets.token_urlsafe(48))

    assert ended.status == 1
    assert "the audit key differs" in ended.said


# Tampering


FREE_POSITIONS = "alter table audit_records alter position set generated by default"
INSERT = """
    insert into audit_records (position, id, workspace_id, created_at, user_id, call_id, via, tool, decision, rule,
                               arguments, outcome, duration_us)
    overriding system value
    select {position}, gen_random_uuid(), workspace_id, created_at, user_id, gen_random_uuid(), via, tool, decision,
           rule, arguments, outcome, duration_us from audit_records limit 1
"""
DAMAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "a changed record": (("update audit_records set tool = 'read' where position = 3",), "Seal 2 does not match"),
    "a deleted record": (("delete from audit_records where position = 3",), "Seal 2: records are missing: 3"),
    "the last record deleted": (("delete from audit_records where position = 6",), "Seal 3: records are missing: 6"),
    "records in another order": (
        (
            FREE_POSITIONS,
            "update audit_records set position = -1 where position = 2",
            "update audit_records set position = 2 where position = 5",
            "update audit_records set position = 5 where position = -1",
        ),
        "Seal 1 does not match",
    ),
    "neighbours in another order": (
        (
            FREE_POSITIONS,
            "update audit_records set position = -1 where position = 3",
            "update audit_records set position = 3 where position = 4",
            "update audit_records set position = 4 where position = -1",
        ),
        "Seal 2 does not match",
    ),
    "a record put in among sealed ones": (
        (INSERT.format(position=0),),
        "Unsealed records between sealed ones: 0.",
    ),
    "a seal's hash changed": (("update audit_seals set mac = sha256(mac) where number = 2",), "Seal 2 does not match"),
    "a seal moved to other records": (
        ("update audit_seals set positions = '{[4,6)}' where number = 2",),
        "Seal 2 does not match",
    ),
    "a seal with a gap left open": (
        ("update audit_seals set gaps = '{[2,3)}' where number = 3",),
        "Seal 3 does not match",
    ),
    "a seal with another top": (
        ("update audit_seals set last_position = 9 where number = 3",),
        "Seal 3 does not match",
    ),
    "a seal with another count": (("update audit_seals set record_count = 9 where number = 2",), "Seal 2"),
    "the first seal removed": (("delete from audit_seals where number = 1",), "Seal 1 is missing"),
    "a seal in the middle removed": (("delete from audit_seals where number = 2",), "Seal 2 is missing"),
    "the last seal removed": (("delete from audit_seals where number = 3",), "The audit log ends at seal 2"),
    "the last seal removed with its records": (
        ("delete from audit_seals where number = 3", "delete from audit_records where position > 4"),
        "The audit log ends at seal 2",
    ),
    "everything removed": (("delete from audit_seals", "delete from audit_records"), "The audit log ends at seal 0"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
async def test_verify_detects(damage: tuple[str, ...], message: str, audit_log: AuditLogFixture) -> None:
    await audit_log.filled()

    audit_log.behind_our_back(*damage)

    ended = audit_log.verified()
    assert ended.status == 1
    assert message in ended.said
    assert "verification FAILED" in ended.said
    assert "Traceback" not in ended.said
    verifier = audit_verifier(audit_log.settings, audit_log.stores)
    assert message in " ".join((await verifier.stretch(0)).problems)


async def test_change_of_any_column_of_a_record_is_detected(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)
    sealing, key = audit_log.stores.audit_seals, audit_seal_key(audit_log.settings)
    columns = audit_log.rows(
        "select column_name, udt_name from information_schema.columns where table_name = 'audit_records' and "
        "table_schema = 'toolcrib' and column_name <> 'position'"
    )
    others = {
        "uuid": "gen_random_uuid()", "text": "'forged'", "jsonb": "'[{\"forged\": 1}]'", "int8": "4711",
        "timestamptz": "now() - interval '1 day'",
    }  # fmt: skip
    unseen: list[str] = []
    for column, kind in columns:
        audit_log.behind_our_back(
            "create table kept as select * from audit_records where position = 1",
            f"update audit_records set {column} = {others[kind]} where position = 1",
        )
        if not (await verify(sealing, key)).problems:
            unseen.append(column)
        audit_log.behind_our_back(
            f"update audit_records set {column} = kept.{column} from kept where audit_records.position = 1",
            "drop table kept",
        )
        assert (await verify(sealing, key)).problems == ()

    assert len(columns) == 20
    assert unseen == []


async def test_record_inserted_into_an_old_gap_is_detected(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)
    leave_a_gap(audit_log)
    await audit_log.filled(seals=1)
    audit_log.behind_our_back("update audit_seals set sealed_at = now() - interval '2 hours'")
    await audit_log.filled(seals=1)
    assert audit_log.verified().status == 0

    audit_log.behind_our_back(INSERT.format(position=3))

    ended = audit_log.verified()
    assert ended.status == 1
    assert "Unsealed records between sealed ones: 3." in ended.said


async def test_unreadable_anchor_fails_verification_without_a_traceback(audit_log: AuditLogFixture) -> None:
    """A server killed while it writes the anchor must not leave such a file; tampering with it is reported."""
    await audit_log.filled(seals=1)
    audit_log.settings.audit_anchor.write_text("")

    ended = audit_log.verified()

    assert ended.status == 1
    assert "verification FAILED" in ended.said
    assert "Traceback" not in ended.said


async def test_anchor_is_replaced_atomically(audit_log: AuditLogFixture) -> None:
    """If it were written in place, a reader or a kill could meet it half written."""
    await audit_log.filled(seals=1)
    with audit_log.settings.audit_anchor.open() as opened:
        before = opened.read()
        await audit_log.filled(seals=1)
        opened.seek(0)
        assert opened.read() == before

    assert audit_log.settings.audit_anchor.read_text() != before


# Concurrent writes


async def test_late_commit_is_sealed_later_and_the_log_stays_verified(audit_log: AuditLogFixture) -> None:
    await audit_log.call("file_info", path="/")
    async with await psycopg.AsyncConnection.connect(audit_log.urls.owner) as late:
        await late.execute("set search_path to toolcrib")
        await late.execute(sql.SQL("insert into audit_records overriding system value {}").format(another_record()))
        await audit_log.call("file_info", path="/")
        assert await audit_log.sealer.seal() == 2
        assert audit_log.verified().status == 0

    assert "1 records are not sealed yet" in audit_log.verified().said
    assert await audit_log.sealer.seal() == 1
    ended = audit_log.verified("--full")
    assert ended == Ended(0, "Audit log verified: 3 records in 2 seals.\n")


async def test_rolled_back_record_leaves_the_log_verified(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)
    leave_a_gap(audit_log)
    await audit_log.filled(seals=1)

    assert audit_log.verified() == Ended(0, "Audit log verified: 4 records in 2 seals.\n")


async def test_concurrent_sealers_do_not_fork_the_chain(audit_log: AuditLogFixture) -> None:
    sealed: list[int] = []

    async def seal_often() -> None:
        async with Database.open(audit_log.urls.app, audit_log.urls.system, pool_size=2) as database:
            sealer = audit_sealer(audit_log.settings, Stores(audit_log.settings, database))
            sealed.extend([await sealer.seal() for _ in range(10)])

    async def call_often() -> None:
        for _ in range(20):
            await audit_log.call("file_info", path="/")

    await asyncio.gather(*(seal_often() for _ in range(4)), *(call_often() for _ in range(4)))
    sealed.append(await audit_log.sealer.seal())

    numbers = [number for (number,) in audit_log.rows("select number from audit_seals order by number")]
    covered = Counter(
        position
        for (position,) in audit_log.rows(
            "select a.position from audit_records a join audit_seals s on s.positions @> a.position"
        )
    )
    assert sum(sealed) == len(covered) == 80
    assert set(covered.values()) == {1}
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 1
    assert audit_log.verified().status == 0


async def test_seal_made_during_verification_is_no_error(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)

    class Interrupted(AuditSealStore):
        """A sealer runs between the chain and the rest of the verification."""

        async def unsealed_below(self) -> list[int]:
            await audit_log.filled(seals=1)
            return await super().unsealed_below()

    found = await verify(
        Interrupted(audit_log.database), audit_seal_key(audit_log.settings), anchor=audit_log.settings.audit_anchor
    )

    assert found.problems == ()


# One record for every call


async def test_every_call_has_exactly_one_record_however_it_ends(audit_log: AuditLogFixture) -> None:
    agent = (await audit_log.agent(trust=TrustLevel.SUPERVISED)).agent
    calls: dict[str, tuple[str, dict[str, Any], Agent | None]] = {
        "read": ("file_info", {"path": "/"}, None),
        "changed": ("write", {"path": "/a.txt", "content": "x"}, None),
        "not found": ("read", {"path": "/nothing"}, None),
        "wrong arguments": ("read", {"path": 5}, None),
        "no such tool": ("fly", {}, None),
        "no such tool, oddly named": ("fly\0away", {"path": "/a\0b"}, None),
        "outside": ("read", {"path": "/../../etc/passwd"}, None),
        "read-only mount": ("write", {"path": "@pkg/x", "content": "x"}, None),
        "not permitted": ("write", {"path": "/b.txt", "content": "x"}, agent),
        "denied": ("read", {"path": "/a.txt"}, agent),
    }
    made: dict[CallId, str] = {}
    for name, (asked, arguments, actor) in calls.items():
        caller = replace(audit_log.caller, agent=actor)
        outcome = await audit_log.call(asked, caller, **arguments)
        made[outcome.call_id] = name
        if outcome.is_waiting:
            approval_id, no = outcome.metadata["pause_id"], ApprovalDecision(approved=False)
            await audit_log.engine.paused_calls.decide(audit_log.tenant, approval_id, no, via="test")

    recorded = Counter(
        call_id for (call_id,) in audit_log.rows("select call_id from audit_records where rule <> 'admin'")
    )
    assert {made[CallId(call_id)]: times for call_id, times in recorded.items()} == dict.fromkeys(calls, 1)


async def test_call_of_a_non_member_is_recorded(audit_log: AuditLogFixture) -> None:
    stranger = replace(audit_log.caller, user_id=await new_person(audit_log.stores), call_id=CallId(new_id()))

    with pytest.raises(Forbidden):
        await audit_log.call("read", stranger, path="/a.txt")

    assert audit_log.rows("select tool, decision, rule, outcome, error_code from audit_records") == [
        ("read", "deny", "membership", "denied", "FORBIDDEN")
    ]


async def test_call_of_a_deleted_agent_is_recorded(audit_log: AuditLogFixture) -> None:
    gone = Agent(AgentId(new_id()), "helper", AgentRules(trust=TrustLevel.SUPERVISED))

    with pytest.raises(Forbidden):
        await audit_log.call("read", replace(audit_log.caller, agent=gone), path="/a.txt")

    assert audit_log.rows("select tool, outcome, error_code from audit_records") == [("read", "denied", "FORBIDDEN")]


async def test_call_on_a_node_that_is_not_the_workspaces_home_is_recorded(audit_log: AuditLogFixture) -> None:
    audit_log.behind_our_back("update workspaces set home_node = 'another'")

    with pytest.raises(Superseded):
        await audit_log.call("write", path="/a.txt", content="x")

    assert audit_log.rows("select tool, error_code from audit_records") == [("write", "SUPERSEDED")]


async def test_call_that_fails_by_an_internal_error_is_recorded(audit_log: AuditLogFixture) -> None:
    with pytest.raises(RuntimeError):
        await audit_log.call("broken")

    [(name, outcome)] = audit_log.rows("select tool, outcome from audit_records")
    assert name == "broken"
    assert outcome != "done"


async def test_concurrent_calls_have_one_record_each_and_a_malformed_one_harms_no_other(
    audit_log: AuditLogFixture,
) -> None:
    named = [*["file_info"] * 20, "odd\0name", *["file_info"] * 20]

    outcomes = await asyncio.gather(*(audit_log.call(name, path="/") for name in named))

    recorded = Counter(
        call_id for (call_id,) in audit_log.rows("select call_id from audit_records where rule <> 'admin'")
    )
    assert recorded == Counter(outcome.call_id for outcome in outcomes)
    assert sum(outcome.succeeded for outcome in outcomes) == 40


async def test_audit_log_has_contents_only_as_size_and_hash(audit_log: AuditLogFixture) -> None:
    words = f"never to be seen {secrets.token_hex(8)}"
    given: list[tuple[str, dict[str, Any]]] = [
        ("write", {"path": "/a.txt", "content": words}),
        ("write", {"path": "/a.json", "content": {"deep": [words]}}),
        ("write", {"path": "/a.txt", "content": words}),
        ("edit", {"path": "/a.txt", "old_string": words, "new_string": f"{words}!"}),
        ("edit", {"path": "/a.txt", "insert_line": 0, "insert_content": words}),
        ("edit", {"path": "/a.txt", "old_string": words}),
        ("edit", {"path": "/nothing", "old_string": words, "new_string": words, "content": [words]}),
        ("edit", {"path": "/a.txt", "edits": [{"insert_line": 0, "insert_content": words}]}),
        ("edit", {"path": "/a.txt", "edits": [{"old_string": words, "new_string": words}, {"old_string": words}]}),
        ("plan_write", {"path": "/a.plan", "title": "a", "content": words}),
        ("plan_edit", {"path": "/a.plan", "old_string": words, "new_string": f"{words}!"}),
        ("read", {"path": "/a.txt"}),
        ("cat", {"paths": ["/a.txt"]}),
        ("fly", {"deeper": [{"content": words}]}),
        ("write", {"path": "/b.txt", "content": words, "nonsense": True}),
    ]

    for name, arguments in given:
        await audit_log.call(name, **arguments)

    records = audit_log.rows("select audit_records::text, arguments from audit_records order by position")
    assert len(records) == len(given)
    assert [record for record, _ in records if words in record] == []
    digest = sha256(words.encode()).hexdigest()
    assert records[0][1] == {"path": "/a.txt", "content": {"bytes": len(words), "sha256": digest}}
    # Neither do the rows of the calls, which are kept for long.
    assert [row for (row,) in audit_log.rows("select arguments::text from tool_calls") if words in row] == []


def leave_a_gap(audit_log: AuditLogFixture) -> None:
    """Take a position, and do not commit."""
    with psycopg.connect(audit_log.urls.owner, options="-c search_path=toolcrib") as connection:
        connection.execute("select nextval(pg_get_serial_sequence('toolcrib.audit_records', 'position'))")
        connection.rollback()


def another_record() -> sql.SQL:
    """A record like the first, with the next position and its own ids."""
    return sql.SQL(
        """
        select (jsonb_populate_record(a, jsonb_build_object('position', p.next, 'call_id', gen_random_uuid()))).*
        from audit_records a, (select nextval(pg_get_serial_sequence('toolcrib.audit_records', 'position')) as next) p
        where a.position = 1
        """
    )
