"""Tools of installed Python packages and of a configured module, on a real server."""

import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.conftest import registered
from tests.acceptance.pending_approvals import decide, ended, hire
from tests.acceptance.serving import Serving, free_port, running, serving
from tests.acceptance.workspace import Workspace
from tests.databases import DatabaseUrls
from tests.wait_until import PATIENCE

PACKAGE = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "acme-tools"
version = "1.2"

[project.entry-points."toolcrib.tools"]
parts = "acme_tools.parts"
order = "acme_tools.orders:order_part"

[tool.hatch.build.targets.wheel]
packages = ["acme_tools"]
""",
    "acme_tools/__init__.py": "",
    "acme_tools/parts.py": '''
from pathlib import Path
import time

from toolcrib import AbsolutePath, Danger, ToolContext, tool


@tool(danger=Danger.SAFE)
def lookup_part(number: str) -> dict[str, object]:
    """Look up a spare part.

    Args:
        number: The part number.
    """
    return {"number": number, "stock": 4}


@tool(danger=Danger.SAFE)
def block(until: str) -> str:
    """Block a thread until a file exists."""
    while not Path(until).exists():
        time.sleep(0.02)
    return "done"


@tool(danger=Danger.SAFE)
async def block_loop(until: str) -> str:
    """Block an event loop until a file exists."""
    while not Path(until).exists():
        time.sleep(0.02)
    return "done"


@tool(idempotent=True)
async def append_line(path: AbsolutePath, line: str, context: ToolContext) -> str:
    """Append a line to a file."""
    text = await context.files.read_text(path) if await context.files.exists(path) else ""
    context.emit("appending")
    await context.files.write_text(path, text + line + "\\n")
    return f"{len(text)} characters before"
''',
    "acme_tools/orders.py": '''
from toolcrib import tool


@tool
def order_part(number: str) -> str:
    """Order a spare part."""
    return f"ordered {number}"
''',
}
MODULE = '''
from toolcrib import Danger, tool


@tool(danger=Danger.SAFE)
def office_hours() -> str:
    """Say when the office is open."""
    return "9 to 5"
'''
RULES = """
trust: guided
tool_permissions:
  lookup_part: {allowed: true}
  order_part: {allowed: true}
  append_line: {allowed: true}
  block: {allowed: true, timeout: 1}
  block_loop: {allowed: true, timeout: 1}
"""


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def installed(project: Path, site: Path) -> None:
    """Build the project's wheel and install it, as ``pip install acme-tools`` would."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "--target", str(site), str(project)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed package, and the module of the operator."""
    site = tmp_path_factory.mktemp("site")
    installed(put(tmp_path_factory.mktemp("acme"), PACKAGE), site)
    return put(site, {"office_tools.py": MODULE})


@pytest.fixture(scope="module")
def equipped(site: Path, database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    environment = {"PYTHONPATH": str(site), "TOOLCRIB_TOOLS_MODULE": "office_tools"}
    with serving(tmp_path_factory.mktemp("equipped"), database_urls, environment) as server:
        yield server


@pytest.fixture(scope="module")
def shop(equipped: Serving) -> Iterator[Workspace]:
    owner = registered(equipped, "owner@acme.example")
    with httpx2.Client(base_url=equipped.api, trust_env=False, timeout=PATIENCE) as client:
        made = client.post("/workspaces", json={"name": "shop"}, headers={"Authorization": f"Bearer {owner.token}"})
        assert made.status_code == 201, made.text
        project = equipped.data_dir / "workspaces" / made.json()["id"] / "project"
        project.mkdir(parents=True)
        yield Workspace(client, made.json()["id"], owner.token, project)


def test_tools_are_listed_with_their_package_and_called_by_people(shop: Workspace) -> None:
    tools = {one["name"]: one for one in shop.get("/tools").json()}

    assert tools["lookup_part"]["source"] == "acme-tools 1.2 (acme_tools.parts)"
    assert tools["order_part"]["source"] == "acme-tools 1.2 (acme_tools.orders:order_part)"
    assert tools["office_hours"]["source"] == "module office_tools"
    assert "source" not in tools["read"]
    assert tools["lookup_part"]["inputSchema"]["properties"]["number"]["description"] == "The part number."
    assert shop.result("lookup_part", number="A-1") == {"number": "A-1", "stock": 4}
    assert shop.result("office_hours") == "9 to 5"
    assert shop.call("lookup_part", part="A-1").status_code == 400


def test_agent_needs_the_permission_and_an_approval_unless_the_author_declares_the_tool_safe(shop: Workspace) -> None:
    agent = hire(shop, RULES, name="buyer")
    stranger = hire(shop, "trust: autonomous\ntool_permissions: {read: {allowed: true}}", name="reader")

    assert agent.workspace.result("lookup_part", number="A-1")["stock"] == 4
    assert stranger.workspace.call("lookup_part", number="A-1").status_code == 403
    waiting = agent.asks("order_part", number="A-1")
    decide(shop, waiting["pause_id"])
    call = ended(agent.workspace, waiting["call_id"])

    assert (call["state"], call["result"]) == ("done", "ordered A-1")
    records = [one for one in shop.get("/audit").json()["items"] if one["call_id"] == waiting["call_id"]]
    assert [(one["tool"], one["decision"], one["outcome"]) for one in records] == [("order_part", "ask", "done")]
    assert records[0]["agent_id"] == agent.id


def test_coroutine_of_a_package_changes_files_which_can_be_undone(shop: Workspace) -> None:
    shop.write("/log.txt", "first\n")

    assert shop.result("append_line", path="/log.txt", line="second") == "6 characters before"
    assert shop.on_disk("/log.txt").read_text() == "first\nsecond\n"
    [_, last] = shop.history(shop.file_id("/log.txt"))
    assert last[1] == "first\nsecond\n"
    agent = hire(shop, RULES, name="writer")
    waiting = agent.asks("append_line", path="/log.txt", line="third")
    assert shop.on_disk("/log.txt").read_text() == "first\nsecond\n"
    decide(shop, waiting["pause_id"])
    assert ended(agent.workspace, waiting["call_id"])["state"] == "done"
    # The disk follows the history, and a command waits for it.
    assert shop.result("bash", command="cat log.txt")["output"] == "first\nsecond\nthird\n"


@pytest.mark.parametrize("tool", ["block", "block_loop"])
def test_tool_that_blocks_does_not_block_the_server_and_times_out_for_an_agent(
    shop: Workspace, equipped: Serving, tmp_path: Path, tool: str
) -> None:
    gate, answers = tmp_path / "gate", []
    blocked = [threading.Thread(target=lambda: answers.append(shop.result(tool, until=str(gate)))) for _ in range(10)]
    for thread in blocked:
        thread.start()

    assert httpx2.get(f"{equipped.origin}/health", trust_env=False, timeout=PATIENCE).status_code == 200
    assert shop.result("lookup_part", number="A-1")["stock"] == 4
    shop.write(f"/{tool}.txt", "written meanwhile")
    late = hire(shop, RULES, name=f"late-{tool}").workspace.call(tool, until=str(gate))
    assert answers == []
    gate.touch()
    for thread in blocked:
        thread.join(PATIENCE)

    assert answers == ["done"] * 10
    assert late.json()["code"] == "TIMED_OUT"


def test_server_ends_although_a_tool_never_returns(site: Path, database_urls: DatabaseUrls, tmp_path: Path) -> None:
    server = Serving(
        f"http://127.0.0.1:{free_port()}",
        secrets.token_urlsafe(48),
        tmp_path,
        database_urls,
        environment={"PYTHONPATH": str(site), "TOOLCRIB_DRAIN_SECONDS": "1"},
    )
    with running(server) as process:
        owner = registered(server, "stuck@acme.example")
        with httpx2.Client(base_url=server.api, trust_env=False, timeout=PATIENCE) as client:
            made = client.post("/workspaces", json={"name": "x"}, headers={"Authorization": f"Bearer {owner.token}"})
            stuck = hire(Workspace(client, made.json()["id"], owner.token, tmp_path), RULES).workspace
            assert stuck.call("block", until="/nowhere").json()["code"] == "TIMED_OUT"
    assert process.returncode == 0, server.log.read_text()


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize(
    ("files", "module", "words"),
    [
        ({"bad.py": "1 / 0"}, "bad", r"tools of module bad cannot be loaded: ZeroDivisionError: division by zero"),
        ({}, "missing_tools", r"No module named 'missing_tools'.*change TOOLCRIB_TOOLS_MODULE"),
        ({"empty.py": "x = 1"}, "empty", r"Module empty has no tools. Make tools with `@toolcrib.tool`"),
        ({"undocumented.py": "from toolcrib import tool\n@tool\ndef f(): ..."}, "undocumented", r"no docstring"),
        (
            {"clash.py": 'from toolcrib import tool\n@tool\ndef read(path: str) -> str:\n    """Read."""'},
            "clash",
            r"The tool 'read' of module clash has the name of a built-in one. Rename it",
        ),
        (
            {"fake.py": 'from toolcrib import tool\n@tool(name="mcp:x/y")\ndef f() -> str:\n    """F."""'},
            "fake",
            r"The tool 'mcp:x/y' of module fake has an invalid name",
        ),
    ],
)
def test_server_does_not_start_with_tools_that_cannot_be_loaded(
    tmp_path: Path, database_urls: DatabaseUrls, files: dict[str, str], module: str, words: str
) -> None:
    environment = {"PYTHONPATH": str(put(tmp_path / "site", files)), "TOOLCRIB_TOOLS_MODULE": module}

    with (
        pytest.raises(AssertionError, match=r"(?s)The server ended with 2.*" + words),
        serving(tmp_path, database_urls, environment),
    ):
        pass


def test_two_packages_with_a_tool_of_one_name_are_both_named(
    tmp_path: Path, site: Path, database_urls: DatabaseUrls
) -> None:
    other = 'from toolcrib import tool\n@tool\ndef lookup_part(number: str) -> str:\n    """Look."""'
    path = f"{put(tmp_path / 'site', {'other.py': other})}:{site}"

    with (
        pytest.raises(AssertionError, match=r"'lookup_part' of module other has the name of one of acme-tools 1.2"),
        serving(tmp_path, database_urls, {"PYTHONPATH": path, "TOOLCRIB_TOOLS_MODULE": "other"}),
    ):
        pass
