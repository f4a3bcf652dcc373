"""Attacks on the audit log with write access to the database and no key: anchor or witness detects each."""

import asyncio
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.adversarial.test_audit import AuditLogFixture, audit_log, template
from tests.fakes.webhook import Webhook
from tests.integration.conftest import new_person
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import WorkspaceId, new_id
from toolcrib.gate.audit_checkpoints import CheckpointSigner, is_signed
from toolcrib.gate.audit_seals import AuditSealer, SealingRefused
from toolcrib.gate.audit_verification import AuditVerifier, CheckpointExporter, verify
from toolcrib.wiring.server import audit_seal_key

__all__ = ["audit_log", "template"]

pytestmark = pytest.mark.xdist_group("audit log")

TRUNCATE = ("delete from audit_seals where number > {seal}", "delete from audit_records where position > {top}")


def truncate(log: AuditLogFixture, *, seals: int, each: int = 2) -> None:
    """Delete every seal after one, and the records in them."""
    log.behind_our_back(*(statement.format(seal=seals, top=seals * each) for statement in TRUNCATE))


def verifier(log: AuditLogFixture, *, anchor: bool = True) -> AuditVerifier:
    path = log.settings.audit_anchor if anchor else None
    return AuditVerifier(
        log.stores.audit_seals, audit_seal_key(log.settings), anchor=path, mark=log.settings.audit_mark
    )


# Truncated


async def test_truncated_log_is_not_sealed_over_and_fails_verification(audit_log: AuditLogFixture) -> None:
    """As the red team did it: delete seals and records, and make one more call."""
    await audit_log.filled(seals=7)
    truncate(audit_log, seals=2)
    await audit_log.call("file_info", path="/")

    with pytest.raises(SealingRefused, match="accept-restore"):
        await audit_log.sealer.seal()

    ended = audit_log.verified()
    assert ended.status == 1
    assert "The audit log ends at seal 2, but there was a seal 7" in ended.said
    assert "verification FAILED" in ended.said
    assert json.loads(audit_log.settings.audit_anchor.read_text())["number"] == 7


async def test_running_sealer_keeps_failing_and_keeps_its_anchor(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    truncate(audit_log, seals=1)
    for _ in range(3):
        await audit_log.call("file_info", path="/")
        with pytest.raises(SealingRefused):
            await audit_log.sealer.seal()

    assert audit_log.rows("select max(number) from audit_seals") == [(1,)]


async def test_emptied_log_is_not_started_again(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=2)
    audit_log.behind_our_back(
        "delete from audit_seals", "delete from audit_records", "alter sequence audit_records_position_seq restart"
    )
    await audit_log.call("file_info", path="/")

    with pytest.raises(SealingRefused):
        await audit_log.sealer.seal()
    assert "The audit log ends at seal 0" in audit_log.verified().said


# Rolled back and sealed again


async def test_log_sealed_over_by_another_node_is_detected_by_this_nodes_anchor(
    audit_log: AuditLogFixture, tmp_path: Path
) -> None:
    """The other node has no anchor that high: it makes seals of the same numbers, with the real key."""
    await audit_log.filled(seals=4)
    truncate(audit_log, seals=2)
    other = AuditSealer(
        audit_log.stores.audit_seals, audit_seal_key(audit_log.settings), anchor=tmp_path / "other-anchor.json"
    )
    for _ in range(3):
        await audit_log.call("file_info", path="/")
        await other.seal()
    assert audit_log.rows("select max(number) from audit_seals") == [(5,)]

    await audit_log.call("file_info", path="/")
    with pytest.raises(SealingRefused, match="Seal 4 differs from the stored copy"):
        await audit_log.sealer.seal()
    assert "Seal 4 differs from the stored copy" in audit_log.verified().said
    found = await verify(
        audit_log.stores.audit_seals, audit_seal_key(audit_log.settings), anchor=audit_log.settings.audit_anchor
    )
    assert any("rolled back and sealed again" in problem for problem in found.problems)


async def test_log_sealed_again_without_the_key_does_not_match(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    truncate(audit_log, seals=1)
    forger = AuditSealer(audit_log.stores.audit_seals, secrets.token_bytes(32))
    for _ in range(2):
        await audit_log.call("file_info", path="/")
        await forger.seal()

    ended = audit_log.verified()
    assert ended.status == 1
    assert "Seal 2 does not match" in ended.said
    assert "Seal 3 differs from the stored copy" in ended.said


async def test_database_restored_from_an_older_copy_is_detected(audit_log: AuditLogFixture) -> None:
    """All rows rolled back, as a restore of an older dump leaves them."""
    await audit_log.filled(seals=2)
    audit_log.behind_our_back(
        "create table old_audit as table audit_records", "create table old_seals as table audit_seals"
    )
    await audit_log.filled(seals=2)
    audit_log.behind_our_back(
        "delete from audit_records",
        "delete from audit_seals",
        "insert into audit_records overriding system value select * from old_audit",
        "insert into audit_seals select * from old_seals",
        "select setval('audit_records_position_seq', 4)",
    )
    await audit_log.call("file_info", path="/")

    with pytest.raises(SealingRefused):
        await audit_log.sealer.seal()
    assert "there was a seal 4" in audit_log.verified().said


# A restore by the operator


async def test_restore_is_declared_recorded_and_shown_from_then_on(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    truncate(audit_log, seals=1)
    assert audit_log.audit("accept-restore", "--yes").said.startswith(
        "Restore accepted and recorded. The audit log continues from seal 1"
    )

    assert await audit_log.sealer.seal() == 1
    await audit_log.filled(seals=1)

    ended = audit_log.verified("--full")
    assert ended.status == 0
    assert "accepted a restore, from seal 3 back to seal 1" in ended.said
    [(tool, outcome, given)] = audit_log.rows(
        "select tool, outcome, arguments from audit_records where tool like 'audit.%'"
    )
    assert (tool, outcome) == ("audit.accept-restore", "done")
    assert (given["before"]["number"], given["after"]["number"]) == (3, 1)


async def test_restore_cannot_be_accepted_where_nothing_was_lost(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=2)

    ended = audit_log.audit("accept-restore", "--yes")

    assert ended.status == 1
    assert "no restore to accept" in ended.said
    assert audit_log.rows("select count(*) from audit_records where tool like 'audit.%'") == [(0,)]


async def test_restore_recorded_without_the_key_is_detected(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=1)
    audit_log.behind_our_back(
        """
        insert into audit_records
            (id, workspace_id, created_at, user_id, call_id, via, tool, decision, rule, arguments, outcome, duration_us)
        select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', created_at, user_id, gen_random_uuid(),
               via, 'audit.accept-restore', decision, rule,
               '{"kind": "toolcrib-audit-restore", "before": {"number": 3}, "after": {"number": 1}, "by": "root"}',
               outcome, duration_us
        from audit_records limit 1
        """
    )
    await audit_log.sealer.seal()

    ended = audit_log.verified()

    assert ended.status == 1
    assert "is not signed with the audit key" in ended.said


# Witnesses


@pytest.fixture
async def witnessed(audit_log: AuditLogFixture, tmp_path: Path) -> Path:
    """A checkpoint exported at the third of five seals, and stored elsewhere."""
    kept = tmp_path / "witness" / "checkpoints.jsonl"
    kept.parent.mkdir()
    await audit_log.filled(seals=3)
    assert audit_log.audit("checkpoint", str(kept)).status == 0
    await audit_log.filled(seals=2)
    return kept


async def test_witness_checks_a_signed_checkpoint_without_the_key(audit_log: AuditLogFixture, witnessed: Path) -> None:
    model_input = json.loads(witnessed.read_text())
    public_key = CheckpointSigner(audit_seal_key(audit_log.settings)).public_key

    assert model_input["number"] == 3
    assert is_signed(model_input, public_key)
    assert not is_signed({**model_input, "number": 2}, public_key)
    assert audit_log.settings.audit_seal_key.get_secret_value() not in witnessed.read_text()


async def test_log_that_contains_a_witnesss_checkpoint_is_verified(audit_log: AuditLogFixture, witnessed: Path) -> None:
    assert audit_log.verified("--checkpoint", str(witnessed)).status == 0


WITNESSED: dict[str, Callable[[AuditLogFixture], object]] = {
    "truncated": lambda log: truncate(log, seals=1),
    "emptied": lambda log: log.behind_our_back("delete from audit_seals", "delete from audit_records"),
}


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("attack", WITNESSED.values(), ids=WITNESSED.keys())
async def test_witness_proves_truncation_even_if_the_anchor_is_gone_too(
    audit_log: AuditLogFixture, witnessed: Path, attack: Callable[[AuditLogFixture], object]
) -> None:
    attack(audit_log)
    # An attacker with the node's disk as well, and without its key.
    audit_log.settings.audit_anchor.unlink()
    audit_log.settings.audit_mark.unlink(missing_ok=True)
    await audit_log.call("file_info", path="/")
    await audit_log.sealer.seal()
    assert audit_log.verified().status == 0

    ended = audit_log.verified("--checkpoint", str(witnessed))

    assert ended.status == 1
    assert "but there was a seal 3" in ended.said


async def test_witness_proves_that_seals_were_rewritten(audit_log: AuditLogFixture, witnessed: Path) -> None:
    truncate(audit_log, seals=2)
    audit_log.settings.audit_anchor.unlink()
    await audit_log.filled(seals=4)

    ended = audit_log.verified("--checkpoint", str(witnessed))

    assert ended.status == 1
    assert "Seal 3 differs from the stored copy" in ended.said


SPOILED: dict[str, Callable[[str], str]] = {
    "another number": lambda text: text.replace('"number": 3', '"number": 2'),
    "another signature": lambda text: text.replace('"signature": "', '"signature": "00'),
    "nothing in it": lambda _: "{}",
    "empty": lambda _: "",
    "a list": lambda _: "[]",
    "no JSON": lambda _: "not json",
}


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("spoiled", SPOILED.values(), ids=SPOILED.keys())
async def test_altered_checkpoint_is_rejected(
    audit_log: AuditLogFixture, witnessed: Path, spoiled: Callable[[str], str]
) -> None:
    witnessed.write_text(spoiled(witnessed.read_text()))

    ended = audit_log.verified("--checkpoint", str(witnessed))

    assert ended.status == 1
    assert "Invalid checkpoint: " in ended.said
    assert "Traceback" not in ended.said


async def test_truncated_log_gets_no_signed_checkpoint(audit_log: AuditLogFixture, tmp_path: Path) -> None:
    await audit_log.filled(seals=3)
    truncate(audit_log, seals=1)

    with pytest.raises(SealingRefused):
        await verifier(audit_log).checkpoint()


async def test_checkpoints_are_exported_to_a_file_and_to_a_url(audit_log: AuditLogFixture, tmp_path: Path) -> None:
    file = tmp_path / "exported.jsonl"
    public_key = CheckpointSigner(audit_seal_key(audit_log.settings)).public_key
    with Webhook.open() as webhook:
        exporter = CheckpointExporter(verifier(audit_log), file=file, url=webhook.url)
        await audit_log.filled(seals=1)
        assert await exporter.export()
        assert not await exporter.export()
        await audit_log.filled(seals=1)
        assert await exporter.export()
        posted = webhook.received

    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written == posted
    assert [model_input["number"] for model_input in written] == [1, 2]
    assert all(is_signed(model_input, public_key) for model_input in written)
    assert audit_log.verified("--checkpoint", str(file)).status == 0


# Incremental verification


async def test_verified_part_is_recomputed_only_on_request(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    first = audit_log.verified()
    await audit_log.filled(seals=2)

    second, full = audit_log.verified(), audit_log.verified("--full")

    assert first.said == "Audit log verified: 6 records in 3 seals.\n"
    assert second.said.startswith("Audit log verified: 4 records in 2 seals.\n3 earlier seals were already verified")
    assert full.said == "Audit log verified: 10 records in 5 seals.\n"


DAMAGES_BEFORE = {
    "a record deleted": ("delete from audit_records where position = 1", "1 sealed records are missing"),
    "a seal's hash changed": (
        "update audit_seals set mac = sha256(mac) where number = 3",
        "Seal 3 differs from the stored copy",
    ),
    "the chain cut there": ("delete from audit_seals where number > 2", "The audit log ends at seal 2"),
}


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize(("damage", "message"), DAMAGES_BEFORE.values(), ids=DAMAGES_BEFORE.keys())
async def test_damage_before_the_mark_is_detected_without_recomputing(
    audit_log: AuditLogFixture, damage: str, message: str
) -> None:
    await audit_log.filled(seals=3)
    assert audit_log.verified().status == 0
    audit_log.settings.audit_anchor.unlink()

    audit_log.behind_our_back(damage)

    ended = audit_log.verified()
    assert ended.status == 1
    assert message in ended.said


async def test_changed_record_before_the_mark_is_detected_by_a_full_verification(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    assert audit_log.verified().status == 0
    audit_log.behind_our_back("update audit_records set tool = 'read' where position = 1")

    assert "Seal 1 does not match" in audit_log.verified("--full").said


async def test_mark_made_without_the_key_is_ignored(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    assert audit_log.verified().status == 0
    mark = json.loads(audit_log.settings.audit_mark.read_text())
    audit_log.behind_our_back("update audit_records set tool = 'read' where position = 5")
    other = CheckpointSigner(secrets.token_bytes(32))
    forged = [{**mark, "top": 9}, {**mark, "public_key": other.public_key}, {"number": 3}]

    for one in forged:
        audit_log.settings.audit_mark.write_text(json.dumps(one))
        ended = audit_log.verified()
        assert ended.status == 1
        assert "is invalid: " in ended.said
        assert "Seal 3 does not match" in ended.said


async def test_server_stores_how_far_it_has_verified(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)
    first = await verifier(audit_log).stretch(None)
    await audit_log.filled(seals=1)
    second = await verifier(audit_log).stretch(None)
    whole = await verifier(audit_log).stretch(0)

    assert (first.first, first.verified_to, first.problems) == (0, 3, ())
    assert (second.first, second.verified_to, second.sealed_records, second.problems) == (3, 4, 2, ())
    assert (whole.first, whole.verified_to, whole.sealed_records, whole.problems) == (0, 4, 8, ())


async def test_verified_middle_part_does_not_count_as_the_complete_log(audit_log: AuditLogFixture) -> None:
    await audit_log.filled(seals=3)

    await verifier(audit_log).stretch(2)

    assert not audit_log.settings.audit_mark.exists()


# Records of non-members


@pytest.fixture
async def stranger(audit_log: AuditLogFixture) -> Caller:
    """A person with an account who calls tools in a workspace of others."""
    return replace(audit_log.caller, user_id=await new_person(audit_log.stores))


def written_by(log: AuditLogFixture, caller: Caller) -> list[dict[str, Any]]:
    return [
        row
        for (row,) in log.rows(
            f"select to_jsonb(audit_records) from audit_records where user_id = '{caller.user_id}' order by position"
        )
    ]


LONG = "tenant-chosen " * 50_000
STRANGE_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "long arguments": ("read", {"path": f"/{LONG}"}),
    "wrong arguments": ("read", {"path": 5, "more": LONG}),
    "a long tool's name": (LONG, {}),
    "an unknown tool": ("fly", {"to": LONG}),
    "many arguments": ("read", {f"a{number}": number for number in range(50_000)}),
    "outside": ("read", {"path": "/../" + LONG}),
    "a command": ("bash", {"command": f"echo {LONG}"}),
}


@pytest.mark.parametrize(("tool", "arguments"), STRANGE_CALLS.values(), ids=STRANGE_CALLS.keys())
async def test_stranger_writes_at_most_a_short_record(
    audit_log: AuditLogFixture, stranger: Caller, tool: str, arguments: dict[str, Any]
) -> None:
    with suppress(Forbidden):
        await audit_log.call(tool, stranger, **arguments)

    [line] = written_by(audit_log, stranger)
    assert line["outcome"] in ("denied", "failed")
    assert line["arguments"] == {}
    assert len(line["tool"].encode()) <= 200
    assert len(json.dumps(line)) < 1_500


async def test_strangers_records_are_limited_per_minute(audit_log: AuditLogFixture, stranger: Caller) -> None:
    elsewhere = [replace(stranger, workspace_id=WorkspaceId(new_id())) for _ in range(50)]
    for caller in [stranger, *elsewhere] * 2:
        with suppress(Forbidden):
            await audit_log.call("read", caller, path="/a.txt")

    assert len(written_by(audit_log, stranger)) == 30
    # The next record has the number of missing ones.
    audit_log.behind_our_back("update outsiders set since = now() - interval '2 minutes'")
    with suppress(Forbidden):
        await audit_log.call("read", stranger, path="/a.txt")
    assert written_by(audit_log, stranger)[-1]["arguments"] == {"unrecorded": 72}


async def test_stranger_does_not_displace_the_records_of_members(audit_log: AuditLogFixture, stranger: Caller) -> None:
    async def attack() -> None:
        with suppress(Forbidden):
            await audit_log.call("read", stranger, path="/a.txt")

    await asyncio.gather(*(attack() for _ in range(60)), *(audit_log.call("file_info", path="/") for _ in range(40)))

    assert audit_log.rows(f"select count(*) from audit_records where user_id = '{audit_log.caller.user_id}'") == [(40,)]
    assert len(written_by(audit_log, stranger)) == 30


@pytest.mark.parametrize("arguments", [{"path": f"/{LONG}"}, {f"a{number}": LONG[:1000] for number in range(1000)}])
async def test_members_record_is_bounded_too(audit_log: AuditLogFixture, arguments: dict[str, Any]) -> None:
    await audit_log.call("read", **arguments)
    await audit_log.call(LONG)

    sizes = audit_log.rows("select octet_length(arguments::text), octet_length(tool) from audit_records")
    assert len(sizes) == 2
    assert max(size for size, _ in sizes) <= 20_000
    assert max(size for _, size in sizes) <= 800
