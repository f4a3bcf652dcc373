"""Case 81: patterns that take a backtracking matcher years. Each call ends, and no other waits."""

import asyncio

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import new_workspace_fixture
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

PATTERNS = (
    r"(a+)+$",
    r"(a|aa)+$",
    r"(a*)*b",
    r"(.*a){20}c",
    r"((a{1,30}){1,30}){1,30}$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
)
# Far more than any normal pattern needs, far less than an exponential one.
SECONDS = 60


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    workspace = await new_workspace_fixture(database, settings)
    (workspace.project / "bait").write_text("a" * 5_000 + "!\n")
    (workspace.project / ("a" * 200)).write_text("bait")
    return workspace


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_case_81_exponential_pattern_ends_and_other_calls_are_answered(
    workspace: WorkspaceFixture, pattern: str
) -> None:
    async with asyncio.timeout(SECONDS):
        searching = asyncio.create_task(workspace.call("grep", pattern=pattern))
        assert (await workspace.result("read", path="/bait"))["content"]
        outcome = await searching

    assert outcome.succeeded or outcome.error is not None


@pytest.mark.parametrize("glob", ["*a*a*a*a*a*a*a*a*a*a*b", "**/a**a**a**a**b", "{a,aa}" * 20])
async def test_case_81_exponential_glob_ends(workspace: WorkspaceFixture, glob: str) -> None:
    async with asyncio.timeout(SECONDS):
        outcome = await workspace.call("glob", pattern=glob)

    assert outcome.succeeded or outcome.error is not None


async def test_case_81_exponential_ignore_rules_block_no_command(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".gitignore").write_text("a*a*a*a*a*a*a*a*a*b\n**/a/**/a/**/a/**/b\nkept-out\n")

    async with asyncio.timeout(SECONDS):
        outcome = await workspace.call(
            "bash", command=f"echo x > {'a' * 240}; echo x > kept-out; mkdir -p {'a/' * 50}b"
        )

    assert outcome.succeeded, outcome.error
    assert [one["path"] for one in outcome.result["metadata"]["untracked"]] == ["kept-out", f"{'a/' * 50}b"]
