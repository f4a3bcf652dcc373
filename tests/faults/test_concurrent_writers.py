"""Writers in several processes change one file, or create one folder: no change is lost."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.databases import DatabaseUrls
from tests.faults.consistency_check import Workspace
from tests.faults.processes import Site
from tests.faults.writers import Writers, writers
from tests.integration.conftest import WorkspaceFixture, new_workspace
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

pytestmark = pytest.mark.xdist_group("writers")

PATH = "/notes/shared.md"


@pytest.fixture(scope="module")
def site(database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(database_urls.app, database_urls.system, tmp_path_factory.mktemp("writers"), "writers")


@pytest.fixture(scope="module")
def eight(site: Site) -> Iterator[Writers]:
    with writers(8, site) as started:
        yield started


@pytest.fixture
async def workspace(database: Database, settings: Settings, site: Site) -> WorkspaceFixture:
    """A workspace on the writers' node, seen from another process."""
    settings = settings.model_copy(update={"node_name": site.node, "data_dir": site.data_dir})
    return await new_workspace(database, settings)


async def test_no_edit_of_eight_processes_is_lost(
    workspace: WorkspaceFixture, eight: Writers, database_urls: DatabaseUrls
) -> None:
    await edit_together(workspace, eight, database_urls, edits=200, by_hash=True)


@pytest.mark.long
async def test_edits_without_a_hash_are_planned_again_and_none_is_lost(
    workspace: WorkspaceFixture, eight: Writers, database_urls: DatabaseUrls
) -> None:
    await edit_together(workspace, eight, database_urls, edits=40, by_hash=False)


async def test_folders_that_several_processes_create_at_once_are_created_once(
    workspace: WorkspaceFixture, eight: Writers, database_urls: DatabaseUrls
) -> None:
    folders = [f"/made/at{n}/once" for n in range(4)]

    said = eight.all_do("create", workspace.caller, folders=folders, count=3)

    truth = Workspace(database_urls.owner, workspace.caller.workspace_id, workspace.project)
    acknowledged = [path for each in said for path in each.acknowledged]
    assert len(acknowledged) == len(eight) * 4 * 3
    made = {"/made", *(f"/made/at{n}" for n in range(4)), *folders}
    assert set(truth.live()) == {*acknowledged, *made}
    # A folder that was created twice would have two rows, or a second version.
    assert [version.version_number for version in truth.versions() if version.kind == "folder"] == [1] * len(made)
    assert all((workspace.project / path[1:]).read_text() == path for path in acknowledged)
    truth.assert_true()


@pytest.mark.long
async def test_no_edit_of_thirty_two_processes_is_lost(
    workspace: WorkspaceFixture, database_urls: DatabaseUrls, site: Site
) -> None:
    with writers(32, site) as started:
        await edit_together(workspace, started, database_urls, edits=2_016, by_hash=True)


async def edit_together(
    workspace: WorkspaceFixture, together: Writers, urls: DatabaseUrls, *, edits: int, by_hash: bool
) -> None:
    await workspace.result("write", path=PATH, content="BEGIN\nEND\n")

    said = together.all_do("edit", workspace.caller, path=PATH, count=edits // len(together), by_hash=by_hash)

    acknowledged = [line for each in said for line in each.acknowledged]
    assert len(acknowledged) == edits
    if by_hash:
        # Otherwise they wrote one after the other, and the test showed nothing.
        assert sum(each.conflicts for each in said) > 0
    on_disk = (workspace.project / PATH[1:]).read_text().splitlines()
    assert sorted(on_disk) == sorted(["BEGIN", *acknowledged, "END"])
    truth = Workspace(urls.owner, workspace.caller.workspace_id, workspace.project)
    truth.assert_true()
    assert_each_version_adds_one_line(truth, edits)


def assert_each_version_adds_one_line(truth: Workspace, edits: int) -> None:
    history = truth.versions(PATH)
    assert len(history) == edits + 1
    contents = [truth.content(version.sha256).decode().splitlines() for version in history if version.sha256]
    for earlier, later in pairwise(contents):
        [added] = set(later) - set(earlier)
        assert [line for line in later if line != added] == earlier
