"""Callers are told which files their commands did not see, so that none is taken for an empty file."""

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import in_session
from tests.integration.tools.shell.builders import hand, ran

HIDDEN = "[hidden from commands, to which they look empty (they are not): "


async def test_hidden_file_that_a_command_names_is_told_each_time(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".env").write_text("A=1\n")
    agent = await hand(workspace)

    for _ in range(2):
        assert (await ran(workspace, "cat .env", agent))["output"] == f"{HIDDEN}.env]"
    assert (await ran(workspace, "ls -A", agent))["output"] == f".env\n{HIDDEN}.env]"
    assert (await ran(workspace, "echo hi", agent))["output"] == "hi\n"
    assert (await ran(workspace, "cat .env"))["output"] == "A=1\n"


async def test_session_is_told_once_of_files_that_a_program_may_open(workspace: WorkspaceFixture) -> None:
    (workspace.project / "tests").mkdir()
    (workspace.project / "tests" / "credentials.json").write_text("{}")
    agent = await in_session(workspace, await hand(workspace))
    program = 'python3 -c \'print(len(open("/project/tests/cred" + "entials.js" + "on").read()))\''

    first = await ran(workspace, program, agent)
    second = await ran(workspace, program, agent)
    (workspace.project / ".env").write_text("A=1\n")
    third = await ran(workspace, "true", agent)

    assert first["output"] == f"0\n{HIDDEN}tests/credentials.json]"
    assert second["output"] == "0\n"
    assert third["output"] == f"{HIDDEN}.env]"


async def test_many_hidden_files_make_a_short_note(workspace: WorkspaceFixture) -> None:
    for number in range(300):
        (workspace.project / f"{number:03}.key").write_text("key")

    output = (await ran(workspace, "cat 299.key *.key", await in_session(workspace, await hand(workspace))))["output"]

    assert output.startswith(f"{HIDDEN}299.key, 000.key, ")
    assert output.endswith(" and 280 more]")
    assert len(output) < 400
