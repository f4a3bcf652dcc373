"""The guard: places, one at a time."""

import pytest

from tests.unit.policy.cast import agent, person, project
from toolcrib.domain.errors import NotPermitted, ProtectedName, ReadOnlyMount
from toolcrib.domain.places import Mount, Place
from toolcrib.policy.guard import Guard

PKG_FILE = Place(Mount.PKG, "/guide.md")
LOG_FILE = Place(Mount.STATE, "/logs/execution.jsonl")


@pytest.mark.req("PO-6", part="writes to @pkg")
def test_nobody_writes_to_pkg_and_everybody_reads_it() -> None:
    for caller in (person(), agent()):
        Guard(caller, "write").check_read(PKG_FILE)
        with pytest.raises(ReadOnlyMount, match="@pkg is read-only"):
            Guard(caller, "write").check_write(PKG_FILE)


@pytest.mark.req("WS-1", part="the logs of @state")
@pytest.mark.parametrize("place", [LOG_FILE, LOG_FILE.parent])
def test_no_tool_writes_the_logs_and_every_tool_reads_them(place: Place) -> None:
    for caller in (person(), agent()):
        Guard(caller, "write").check_read(place)
        with pytest.raises(ReadOnlyMount, match="only Toolcrib writes @state/logs"):
            Guard(caller, "write").check_write(place)


def test_the_rest_of_state_is_written() -> None:
    Guard(agent(), "write").check_write(Place(Mount.STATE, "/logs.md"))


@pytest.mark.req("WS-4", part="one place at a time")
def test_an_agent_is_kept_from_protected_names_and_a_person_is_not() -> None:
    Guard(person(), "read").check_read(project("/.env"))
    Guard(person(), "write").check_write(project("/.git/hooks/pre-commit"))
    with pytest.raises(ProtectedName, match=r"may not read @project/\.env: `\.env` is protected.*`unprotect`"):
        Guard(agent(), "read").check_read(project("/.env"))
    with pytest.raises(ProtectedName, match="may not write"):
        Guard(agent(), "write").check_write(project("/.vscode/tasks.json"))


@pytest.mark.req("WS-4", part="lifting single patterns")
def test_an_owner_lifts_a_pattern_for_one_agent() -> None:
    Guard(agent(unprotect=[".env"]), "read").check_read(project("/.env"))
    with pytest.raises(ProtectedName):
        Guard(agent(unprotect=[".env"]), "read").check_read(project("/.env.local"))


@pytest.mark.req("PO-1", part="path globs")
def test_an_agent_stays_on_the_paths_of_the_tool_it_uses() -> None:
    caller = agent(tool_permissions={"write": {"allowed": True, "paths": ["src/**"]}, "read": {"allowed": True}})
    Guard(caller, "write").check_write(project("/src/a.py"))
    Guard(caller, "read").check_read(project("/docs/a.md"))
    with pytest.raises(NotPermitted, match=r"may not write @project/docs/a\.md with `write`: its paths are src/\*\*"):
        Guard(caller, "write").check_write(project("/docs/a.md"))
