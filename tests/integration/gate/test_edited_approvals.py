"""Edit before approving: a person changes what a call would write; exactly that is committed, and the model is told."""

import asyncio

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of, joined
from tests.integration.gate.test_approvals import asked, carried_out, decide, guided, let_time_pass
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound
from toolcrib.core.paused_calls import ApprovalDecision, FileEdit, GrantRule, GrantScope, PausedCall, PauseState
from toolcrib.gate.edited_approvals import EditedProposal
from toolcrib.storage.database import Tenant

EDIT = FileEdit("/a.txt", "edited\n")


async def previewed(workspace: WorkspaceFixture, approval: PausedCall, *edits: FileEdit) -> EditedProposal:
    return await workspace.engine.paused_calls.preview_edits(workspace.tenant, approval.id, edits)


async def approving(workspace: WorkspaceFixture, approval: PausedCall, *edits: FileEdit) -> ApprovalDecision:
    """The decision of a person who saw the preview of these edits."""
    seen = await previewed(workspace, approval, *edits)
    return ApprovalDecision(approved=True, edits=edits, change_set_sha256=seen.sha256)


async def state_of(workspace: WorkspaceFixture, approval: PausedCall) -> PauseState:
    return (await workspace.engine.paused_calls.get(workspace.tenant, approval.id)).state


async def test_what_the_person_edited_is_committed_and_the_model_and_the_audit_log_say_so(
    workspace: WorkspaceFixture,
) -> None:
    approval = await asked(workspace, await guided(workspace))
    seen = await previewed(workspace, approval, EDIT)
    [change] = seen.changes
    assert "+edited" in change["diff"]

    decided = await decide(workspace, approval, await approving(workspace, approval, EDIT))
    [outcome] = await carried_out(workspace)

    assert outcome.succeeded
    assert (workspace.project / "a.txt").read_text() == "edited\n"
    told = outcome.result["edited_by_person"]
    assert "not yours" in told["note"]
    assert told["files"][0]["path"] == "/a.txt"
    assert told["files"][0]["diff"].endswith("-a\n+edited\n")
    read = await workspace.call("read", workspace.caller, path="/a.txt")
    assert outcome.result["hash"] == read.result["hash"], "the result has the hash of what is there"
    assert decided.resolution is not None
    [edit] = decided.resolution.edits
    assert edit["sha256"] == change["after"]["sha256"]
    assert decided.approval.changes == seen.changes, "the approval shows what was committed"
    [record] = await audit_records_of(workspace, approval.call_id)
    assert record.decided_by == workspace.caller.user_id
    [file] = record.files
    assert (file["after"], file["proposed"]) == (edit["sha256"], edit["proposed_sha256"])
    assert file["after"] != file["proposed"]


async def test_an_edit_is_refused_with_another_hash_or_none(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))
    other = await approving(workspace, approval, FileEdit("/a.txt", "something else\n"))
    unedited = await previewed(workspace, approval)

    for sha256 in (other.change_set_sha256, unedited.sha256, "0" * 64):
        with pytest.raises(Conflict, match="does not match the change set"):
            await decide(workspace, approval, ApprovalDecision(approved=True, edits=(EDIT,), change_set_sha256=sha256))
    with pytest.raises(BadArguments) as refused:
        await decide(workspace, approval, ApprovalDecision(approved=True, edits=(EDIT,)))
    assert list(refused.value.fields) == ["change_set_sha256"]
    with pytest.raises(Conflict, match="does not match the change set"):
        await decide(workspace, approval, ApprovalDecision(approved=True, change_set_sha256=other.change_set_sha256))

    assert await state_of(workspace, approval) is PauseState.PENDING
    assert not (workspace.project / "a.txt").exists()


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (FileEdit("/b.txt", "x"), "cannot add a file"),
        (FileEdit("/../a.txt", "x"), "cannot add a file"),
        (FileEdit("/a.txt/", "x"), "cannot add a file"),
        (FileEdit("/.env", "x"), "cannot add a file"),
        (FileEdit("/a.txt", "x\0y"), "NUL"),
        (FileEdit("/a.txt", "\ud800"), "Unicode"),
        (FileEdit("/a.txt", "é" * 100_001), "At most 200,000"),
    ],
)
async def test_an_edit_adds_no_path_and_brings_only_text_that_can_be_shown(
    workspace: WorkspaceFixture, edit: FileEdit, why: str
) -> None:
    approval = await asked(workspace, await guided(workspace))

    with pytest.raises(BadArguments) as refused:
        await previewed(workspace, approval, edit)
    assert why in str(refused.value.fields)
    with pytest.raises(BadArguments):
        await decide(workspace, approval, ApprovalDecision(approved=True, edits=(edit,), change_set_sha256="0" * 64))

    assert await state_of(workspace, approval) is PauseState.PENDING


async def test_a_file_is_edited_once_per_decision(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))

    with pytest.raises(BadArguments) as refused:
        await previewed(workspace, approval, EDIT, EDIT)
    assert "twice" in str(refused.value.fields)


async def test_a_protected_file_is_approved_as_proposed_or_not_at_all(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace), path="/.husky/pre-commit", content="id\n")
    assert approval.approval.rule == "protected-name"

    with pytest.raises(BadArguments) as refused:
        await previewed(workspace, approval, FileEdit("/.husky/pre-commit", "rm -rf /\n"))
    assert "protected path" in str(refused.value.fields)
    with pytest.raises(NotFound, match="protected path"):
        await workspace.engine.paused_calls.proposed_text(workspace.tenant, approval.id, "/.husky/pre-commit")


async def test_of_two_deciders_the_second_changes_nothing(workspace: WorkspaceFixture) -> None:
    member = await joined(workspace, WorkspaceRole.MEMBER)
    for number in range(5):
        path = f"/{number}.txt"
        approval = await asked(workspace, await guided(workspace), path=path, content="proposed\n")
        first = await approving(workspace, approval, FileEdit(path, "first\n"))
        second = await approving(workspace, approval, FileEdit(path, "second\n"))

        both = await asyncio.gather(
            decide(workspace, approval, first), decide(workspace, approval, second, by=member), return_exceptions=True
        )

        [won] = [one for one in both if isinstance(one, PausedCall)]
        [lost] = [one for one in both if isinstance(one, Conflict)]
        assert lost.message.startswith("Already approved")
        await carried_out(workspace)
        assert won.resolution is not None
        expected = "first\n" if won.resolution.decided_by == workspace.caller.user_id else "second\n"
        assert (workspace.project / path[1:]).read_text() == expected


async def test_an_expired_or_decided_approval_takes_no_edit(workspace: WorkspaceFixture) -> None:
    expired, rejected = await asked(workspace, await guided(workspace)), await asked(workspace, await guided(workspace))
    late, later = await approving(workspace, expired, EDIT), await approving(workspace, rejected, EDIT)
    await let_time_pass(workspace, expired.id)
    await decide(workspace, rejected, ApprovalDecision(approved=False))

    with pytest.raises(Conflict, match="expired"):
        await decide(workspace, expired, late)
    with pytest.raises(Conflict, match="Already rejected"):
        await decide(workspace, rejected, later)

    assert not (workspace.project / "a.txt").exists()


async def test_a_file_that_changed_since_makes_the_edited_approval_stale(workspace: WorkspaceFixture) -> None:
    await workspace.call("write", workspace.caller, path="/a.txt", content="before\n")
    approval = await asked(workspace, await guided(workspace), path="/a.txt", content="proposed\n", overwrite=True)
    decision = await approving(workspace, approval, EDIT)
    await workspace.call("write", workspace.caller, path="/a.txt", content="by a person\n", overwrite=True)

    with pytest.raises(Conflict, match="was changed by"):
        await decide(workspace, approval, decision)

    assert (workspace.project / "a.txt").read_text() == "by a person\n"


async def test_only_a_member_edits_and_only_for_this_call(workspace: WorkspaceFixture) -> None:
    agent = await guided(workspace)
    approval = await asked(workspace, agent)
    viewer = await joined(workspace, WorkspaceRole.VIEWER)
    decision = await approving(workspace, approval, EDIT)

    for who in (viewer, agent):
        with pytest.raises(Forbidden):
            await workspace.engine.paused_calls.preview_edits(Tenant.of(who), approval.id, [EDIT])
        with pytest.raises(Forbidden):
            await workspace.engine.paused_calls.proposed_text(Tenant.of(who), approval.id, "/a.txt")
        with pytest.raises(Forbidden):
            await decide(workspace, approval, decision, by=who)
    for wrong in (
        ApprovalDecision(approved=False, edits=(EDIT,)),
        ApprovalDecision(
            approved=True,
            scope=GrantScope.ALWAYS,
            rule=GrantRule(("write",)),
            edits=(EDIT,),
            change_set_sha256="0" * 64,
        ),
    ):
        with pytest.raises(BadArguments):
            await decide(workspace, approval, wrong)
    assert await state_of(workspace, approval) is PauseState.PENDING


async def test_an_edit_that_changes_nothing_is_the_plain_approval(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))

    decided = await decide(workspace, approval, await approving(workspace, approval, FileEdit("/a.txt", "a\n")))
    [outcome] = await carried_out(workspace)

    assert decided.resolution is not None
    assert decided.resolution.edits == []
    assert "edited_by_person" not in outcome.result
    assert (workspace.project / "a.txt").read_text() == "a\n"
