"""The person's own programs in commands: usable, read-only, without secrets, with private caches."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import another_engine, hand, new_workspace_fixture, ran
from toolcrib.local.toolchain import command_path, tool_directories, usable_directories
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

SECRET = "hunter2-of-the-person"


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with tools as their installers leave them, and with secrets beside them."""
    home = tmp_path / "home"
    program(home / ".local/share/uv/tools/black/bin/black", "echo black of $0")
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/black").symlink_to(home / ".local/share/uv/tools/black/bin/black")
    program(
        home / ".local/bin/uv", 'mkdir -p "$UV_CACHE_DIR"; echo x >> "$UV_CACHE_DIR/uses"; wc -l < "$UV_CACHE_DIR/uses"'
    )
    program(home / ".cargo/bin/cargo", 'cat "$RUSTUP_HOME/settings.toml"; "$RUSTUP_HOME/toolchains/stable/bin/rustc"')
    program(home / ".rustup/toolchains/stable/bin/rustc", 'mkdir -p "$CARGO_HOME/registry" && echo rustc works')
    (home / ".rustup/settings.toml").write_text('default = "stable"\n')
    program(home / ".nvm/versions/node/v22/bin/npm", 'mkdir -p "$NPM_CONFIG_CACHE" && echo npm works')
    for name in (
        ".ssh/id_ed25519",
        ".cargo/credentials.toml",
        ".aws/credentials",
        ".local/share/toolcrib/secrets.json",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    return home


@pytest.fixture
async def workspace(database: Database, settings: Settings, home: Path) -> WorkspaceFixture:
    return behind(await new_workspace_fixture(database, settings), home)


def behind(workspace: WorkspaceFixture, home: Path, **more: Any) -> WorkspaceFixture:
    """The workspace behind an engine that finds the tools of a home as local mode does."""
    apart_from = (workspace.project, home / ".local/share/toolcrib")
    directories = usable_directories(tool_directories(home), apart_from=apart_from)
    names = (".nvm/versions/node/v22/bin", ".local/bin", "bin", ".cargo/bin")
    person = ":".join((*(f"{home}/{name}" for name in names), f"{workspace.project}/bin", "/usr/bin"))
    usual: dict[str, Any] = {"command_cache_bytes": 50_000_000, "command_path": command_path(person, directories)}
    return another_engine(workspace, **{"tool_dirs": directories, **usual, **more})


async def said(workspace: WorkspaceFixture, command: str, *caller: Any) -> str:
    return str((await ran(workspace, command, *caller))["output"])


async def test_programs_of_the_person_work_in_their_order(workspace: WorkspaceFixture, home: Path) -> None:
    agent = await hand(workspace)

    assert "black of" in await said(workspace, "black", agent)
    assert "rustc works" in await said(workspace, "cargo", agent)
    assert "npm works" in await said(workspace, "npm", agent)
    path = (await said(workspace, "echo $PATH", agent)).strip().split(":")
    assert path == [
        f"{home}/.nvm/versions/node/v22/bin",
        f"{home}/.local/bin",
        f"{home}/.cargo/bin",
        "/usr/bin",
        "/usr/local/bin",
        "/bin",
    ]


async def test_tools_cannot_be_changed_and_nothing_else_of_the_home_is_there(
    workspace: WorkspaceFixture, home: Path
) -> None:
    agent = await hand(workspace)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}

    found = await said(workspace, f"cd {home} && find . -type f; grep -r {SECRET[:7]} {home} 2>/dev/null; true", agent)
    for attempt in ("echo x > {}/.local/bin/black", "touch {}/.cargo/bin/evil", "rm {}/.rustup/settings.toml"):
        result = await workspace.call("bash", agent, command=attempt.format(home))
        assert result.result["is_error"]
        assert "Read-only" in result.result["output"]

    assert "settings.toml" in found
    for absent in ("ssh", "aws", "credentials", "secrets.json", SECRET):
        assert absent not in found
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


@pytest.mark.parametrize("lifted", [(), ("id_ed25519*", ".env", "*credential*")])
async def test_secrets_among_the_tools_are_hidden(
    workspace: WorkspaceFixture, home: Path, lifted: tuple[str, ...]
) -> None:
    tools = home / ".local/bin"
    (tools / "key").symlink_to(home / ".ssh/id_ed25519")
    (tools / "up").symlink_to("../../.aws")
    (home / ".local/share/uv/tools/black/.env").write_text(SECRET)
    (home / ".local/share/uv/tools/black/aws-credentials.json").write_text(SECRET)
    os.link(home / ".local/share/uv/tools/black/.env", home / ".local/share/uv/tools/black/plain")
    agent = await hand(workspace, unprotected_paths=lifted)

    # Added after the first command, too.
    assert SECRET not in await said(
        workspace, f"cat {tools}/key {tools}/up/credentials; grep -r . {home} 2>&1; true", agent
    )
    (home / ".rustup/id_ed25519").write_text(SECRET)
    assert SECRET not in await said(workspace, f"cat {home}/.rustup/id_ed25519; grep -rh . {home} 2>&1; true", agent)
    assert "black of" in await said(workspace, "black", agent)
    assert SECRET not in await said(workspace, f"grep -r . {home} 2>&1; true")


async def test_directories_that_are_links_or_overlap_are_left_out(workspace: WorkspaceFixture, home: Path) -> None:
    shutil.rmtree(home / ".local/bin")
    (home / ".local/bin").symlink_to(home / ".ssh")
    shutil.rmtree(home / ".nvm")
    (home / ".nvm").symlink_to(home / ".aws")
    agent = await hand(workspace)
    # The server started when they were directories.
    assert SECRET not in await said(
        workspace, f"ls -la {home}/.local/bin; cat {home}/.local/bin/id_ed25519; true", agent
    )

    everything = (home / ".local", home / ".cargo/bin", home / ".cargo/bin/nested", workspace.project / "bin", home)
    apart_from = (workspace.project, home / ".local/share/toolcrib")
    assert usable_directories(everything, apart_from=apart_from) == (home / ".cargo/bin",)
    assert usable_directories(tool_directories(home), apart_from=(home / ".rustup/toolchains/mine",)) == (
        home / ".local/share/uv/tools",
        home / ".cargo/bin",
    )
    assert command_path(f"bin:.:{home}/.cargo/bin/../../.ssh:{workspace.project}:/opt/x", [home / ".cargo/bin"]) == (
        "/usr/local/bin:/usr/bin:/bin"
    )


async def test_what_an_agent_writes_never_comes_before_the_persons_programs(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace)
    program(workspace.project / "bin/black", "echo planted")
    program(workspace.project / "bin/ls", "echo planted")

    assert "planted" not in await said(workspace, "black; ls", agent)


async def test_background_processes_have_the_tools_too(workspace: WorkspaceFixture, home: Path) -> None:
    (home / ".rustup/id_ed25519").write_text(SECRET)
    command = f"black; cat {home}/.rustup/id_ed25519; touch {home}/.cargo/bin/evil; echo end"
    try:
        outcome = await workspace.call("bash_start", command=command)
        [process] = re.findall(r"process ([0-9a-f-]{36})", outcome.result["output"])
        text = outcome.result["output"]
        while "end" not in text.splitlines():
            text = (await workspace.call("bash_output", process_id=process, wait=10)).result["output"]
    finally:
        await workspace.engine.background.close()

    assert "black of" in text
    assert "Read-only" in text
    assert SECRET not in text


async def test_cache_is_kept_between_commands_and_private_to_the_agent(
    workspace: WorkspaceFixture, database: Database, settings: Settings, home: Path
) -> None:
    agent, other = await hand(workspace), await hand(workspace)
    elsewhere = behind(await new_workspace_fixture(database, settings), home)

    counts = [(await said(workspace, "uv", agent)).strip() for _ in range(3)]

    assert counts == ["1", "2", "3"]
    assert (await said(workspace, "uv", other)).strip() == "1"
    assert (await said(elsewhere, "uv", await hand(elsewhere))).strip() == "1"
    # It is no part of the workspace, nor of the effect, and not that of the person.
    result = await ran(workspace, "uv", agent)
    assert "changed" not in result["metadata"]
    assert not (home / ".cache").exists()
    assert (await said(workspace, "ls -A ~", agent)).split() == [".cache"]


async def test_cache_cannot_grow_without_bound_or_lead_outside(workspace: WorkspaceFixture, home: Path) -> None:
    agent = await hand(workspace)
    small = behind(workspace, home, command_cache_bytes=1_000_000)
    await said(
        small, "head -c 3000000 /dev/urandom > ~/.cache/big; ln -s / ~/.cache/root; ln -s /etc ~/.cache/etc", agent
    )

    # Measured by the next process.
    again = behind(workspace, home, command_cache_bytes=1_000_000)
    assert (await said(again, "ls -A ~/.cache", agent)).strip() == ""

    await said(again, "mkdir -m 000 ~/.cache/locked", agent)
    third = behind(workspace, home, command_cache_bytes=1_000_000)
    assert (await said(third, "ls -A ~/.cache", agent)).strip() == ""
    assert Path("/etc/passwd").exists()


async def test_servers_have_neither_unless_they_are_set(database: Database, settings: Settings) -> None:
    plain = await new_workspace_fixture(database, settings)

    assert (await said(plain, "echo $PATH; ls -A ~")).split() == ["/usr/local/bin:/usr/bin:/bin"]
    assert not (settings.data_dir / "workspaces" / str(plain.caller.workspace_id) / "caches").exists()
