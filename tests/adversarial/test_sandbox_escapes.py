"""Cases 51 to 70 and 88: commands that try to escape, or to reach what is not theirs."""

import os
import platform
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sandbox.sandbox_fixture import Stand, python
from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.overlay import EntryChange, EntryType
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.sandbox.sandbox import IsolationLevel, Sandbox


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def denied_calls(calls: dict[str, tuple[int, ...]]) -> str:
    """Return a program that makes system calls and prints those that were not denied."""
    return python(
        f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for name, (number, *arguments) in {calls!r}.items():
    answer = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(value) for value in arguments])
    if answer != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        print(name, answer, errno.errorcode.get(ctypes.get_errno()))
print("tried")
"""
    )


X86 = {
    "ptrace": (101, 16, 1),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "unshare user": (272, 0x10000000),
    "unshare mount": (272, 0x00020000),
    "unshare net": (272, 0x40000000),
    "setns": (308, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "umount": (166, 0, 0),
    "pivot_root": (155, 0, 0),
    "chroot": (161, 0),
    "fsopen": (430, 0, 0),
    "open_tree": (428, 0, 0, 0),
    "clone new user": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": (435, 0, 0),
    "io_uring": (425, 1, 0),
    "bpf": (321, 0, 0, 0),
    "keyctl": (250, 0, 0, 0),
    "perf": (298, 0, 0, 0, 0, 0),
    "userfaultfd": (323, 0),
    "open_by_handle_at": (304, 0, 0, 0),
    "x32 getpid": (0x40000000 | 39,),
    "TIOCSTI": (16, 0, 0x5412, 0),
    "TIOCSTI with high bits": (16, 0, 0x5412 | 1 << 32, 0),
    "TIOCLINUX": (16, 0, 0x541C, 0),
    "vsock": (41, 40, 1, 0),
    "packet": (41, 17, 3, 0),
    "raw": (41, 2, 3, 1),
    "netlink audit": (41, 16, 3, 9),
    "bluetooth": (41, 31, 3, 1),
    "alg": (41, 38, 5, 0),
    "memfd": (319, 0, 0),
    "large shared segment": (29, 0, 1 << 30, 0o1600),
    "shared segment with high bits": (29, 0, 1 << 32, 0o1600),
}


async def test_51_file_outside_the_sandbox_directories_cannot_be_read(stand: Stand) -> None:
    canary = stand.folder / "canary"
    canary.write_text("CANARY")
    said = await stand.said(
        f"cat {canary} /mnt/project/../../{canary} /etc/shadow; ls {stand.folder} /root /home; echo end"
    )
    assert "CANARY" not in said
    assert said.count("No such file") >= 4
    assert said.rstrip().endswith("end")


async def test_51_tree_is_reachable_by_no_other_path(stand: Stand) -> None:
    (stand.tree / ".env").write_text("PASSWORD=1")
    said = await stand.said("grep -rs PASSWORD= / --include=.env; echo end", masked=[".env"])
    assert said == "end\n"


async def test_52_servers_environment_cannot_be_read(stand: Stand) -> None:
    said = await stand.said(
        f"cat /proc/*/environ | tr '\\0' '\\n'; ls -d /proc/{os.getpid()}; cat /proc/{os.getpid()}/mem"
    )
    mine = Path("/proc/self/environ").read_bytes().split(b"\0")
    secretive = [line.decode() for line in mine if line.startswith((b"TOOLCRIB_", b"PYTEST_", b"HOME="))]
    assert not [line for line in secretive if line in said.splitlines()]
    assert said.count("No such file") == 2


async def test_53_server_cannot_be_signalled(stand: Stand) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        result = await stand.run(f"kill -USR1 {os.getpid()}; kill -USR1 -1; kill -USR1 {os.getppid()}; exit 3")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == []
    assert result.exit_code in (3, 128 + signal.SIGUSR1)  # it may have hit itself


async def test_54_to_60_forbidden_system_calls_are_denied(stand: Stand) -> None:
    assert platform.machine() == "x86_64", "these numbers are those of x86_64: write the table of this machine"
    assert await stand.said(denied_calls(X86)) == "tried\n"


async def test_55_no_capability_is_left_and_none_can_be_gained(stand: Stand) -> None:
    said = await stand.said("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; id -u")
    facts = dict(line.split(":\t") for line in said.splitlines()[:-1])
    assert {facts[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (facts["NoNewPrivs"], facts["Seccomp"], said.splitlines()[-1]) == ("1", "2", "1000")


async def test_55_first_process_inside_has_no_more_privileges_than_the_command(stand: Stand) -> None:
    said = await stand.said("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp:)' /proc/1/status")
    assert said.split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]


async def test_55_no_process_inside_outlives_us_by_clearing_its_death_signal(stand: Stand) -> None:
    program = """
import ctypes
libc = ctypes.CDLL(None)
before, after = ctypes.c_int(), ctypes.c_int()
libc.prctl(2, ctypes.byref(before))
for number in (0, 15):
    print(libc.prctl(1, number))
libc.prctl(2, ctypes.byref(after))
print(before.value == after.value)
"""
    assert (await stand.said(python(program))).split() == ["0", "0", "True"]


async def test_61_abstract_socket_of_the_host_cannot_be_reached(stand: Stand) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"toolcrib-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.listen()
        program = f"import socket\nsocket.socket(socket.AF_UNIX).connect('\\0{name}')"
        assert "ConnectionRefusedError" in await stand.said(python(program))


async def test_61_port_of_the_host_cannot_be_reached(stand: Stand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)"
        assert "ConnectionRefusedError" in await stand.said(python(program))


async def test_62_sockets_of_the_hosts_daemons_are_absent(stand: Stand) -> None:
    said = await stand.said("find / -type s 2>/dev/null; ls /var/run/docker.sock /run/docker.sock /run 2>&1; echo end")
    assert said.count("No such file") == 3
    assert len(said.splitlines()) == 4


async def test_63_setuid_has_no_effect_and_devices_cannot_be_opened(stand: Stand) -> None:
    said = await stand.said("cat /proc/self/mountinfo")
    mounts = [line.split() for line in said.splitlines()]
    assert [mount[4] for mount in mounts if "nosuid" not in mount[5]] == []
    known = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts"}
    assert {mount[4] for mount in mounts if "nodev" not in mount[5]} <= known


async def test_64_no_descriptor_of_the_server_is_inherited(stand: Stand) -> None:
    secret = stand.folder / "held"
    secret.write_text("held")
    held = os.open(secret, os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        said = await stand.said("for fd in /proc/self/fd/*; do readlink $fd; done; echo; cat <&9")
    finally:
        os.close(held)
    assert "held" not in said
    opened = [
        line for line in said.splitlines() if line.startswith(("/dev", "/proc", "/tmp", "pipe", "socket", "anon"))
    ]
    assert {line.split(":")[0] for line in opened} <= {"/dev/null", "pipe", "/proc/self/fd"}


async def test_65_servers_environment_is_not_inherited(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "BASH_ENV", "ENV", "TEST_API_KEY", "DATABASE_URL", "PYTHONPATH"):
        monkeypatch.setenv(name, "carried")
    monkeypatch.setenv("PATH", "/carried:/usr/bin:/bin")
    command = SandboxCommand(
        "env", env={"COLOR": "blue", "MY_TOKEN": "carried", "REMOTE": "https://me:carried@example.org/"}
    )
    said = await stand.said(command)
    assert "carried" not in said
    assert "COLOR=blue" in said.splitlines()


async def test_66_files_that_would_run_on_the_host_are_only_proposed(stand: Stand) -> None:
    (stand.tree / ".git").mkdir()
    async with stand.begin() as view:
        await view.run(
            SandboxCommand(
                "mkdir -p .git/hooks; echo 'touch /tmp/owned' > .git/hooks/post-checkout; echo {} > .mcp.json"
            )
        )
        made = {entry.path for entry in await view.effect() if entry.change is EntryChange.CREATED}
    assert made == {".git/hooks", ".git/hooks/post-checkout", ".mcp.json"}
    assert sorted(path.name for path in stand.tree.rglob("*")) == [".git"]


async def test_68_mask_persists_while_the_host_replaces_the_file(stand: Stand) -> None:
    (stand.tree / ".env").write_text("OLD=1")

    def replace(_: str) -> None:
        fresh = stand.tree / "fresh"
        fresh.write_text("NEW=1")
        fresh.rename(stand.tree / ".env")

    command = "echo up; n=0; while [ $n -lt 300 ]; do cat .env; cat /mnt/project/.env; n=$((n+1)); done"
    result = await stand.run(command, replace, masked=[".env"])
    assert result.output.text == "up\n"
    assert (stand.tree / ".env").read_text() == "NEW=1"


async def test_68_masked_path_cannot_be_reached_by_any_trick(stand: Stand) -> None:
    (stand.tree / "sub").mkdir()
    for path in (".env", "sub/.env"):
        (stand.tree / path).write_text("SECRET=1")
    (stand.tree / ".ssh").mkdir()
    (stand.tree / ".ssh" / "id_rsa").write_text("SECRET=2")
    tricks = """
    cat .env sub/.env; ls -a .ssh; cat .ssh/id_rsa; chmod 777 .env .ssh; cat .env; mv .env moved; cat moved
    mv sub other; cat other/.env; ln other/.env hard; cat hard; rm -f .env; cat .env; cp -r .ssh copied; ls -a copied
    rm -rf .ssh; mkdir .ssh; ls -a .ssh; cat .ssh/id_rsa; find . -type f | xargs cat
    """
    async with stand.begin(masked=[".env", "sub/.env", ".ssh"]) as view:
        result = await view.run(SandboxCommand(tricks))
        touched = {entry.path for entry in (await view.effect()).masked}
    assert "SECRET" not in result.output.text
    assert {".env", "sub/.env", ".ssh/id_rsa"} <= touched


@pytest.mark.parametrize(
    "cwd", ["/", "/etc", "/mnt", "/mnt/project/../..", "/mnt/projects", "relative", "/mnt/project\0x"]
)
async def test_69_working_directory_outside_the_sandbox_is_rejected(stand: Stand, cwd: str) -> None:
    with pytest.raises(ToolFailed, match="outside the mounts"):
        await stand.run(SandboxCommand("pwd", cwd=cwd))


async def test_69_working_directory_that_is_a_link_stays_inside(stand: Stand) -> None:
    (stand.tree / "away").symlink_to("/usr")
    said = await stand.said(SandboxCommand("touch x; pwd -P", cwd="/mnt/project/away"))
    assert said.endswith("/usr\n")
    assert "Read-only" in said


async def test_70_state_that_the_sandbox_reports_cannot_be_forged(stand: Stand) -> None:
    forging = """for fd in /proc/*/fd/*; do echo '{ "exit-code": 0 }' > $fd; done 2>/dev/null; exit 7"""
    assert (await stand.run(forging)).exit_code == 7


async def test_read_only_directories_and_the_system_cannot_be_written(stand: Stand) -> None:
    paths = ["/mnt/pkg/x", "/usr/x", "/etc/x", "/x", "/dev/x", "/mnt/x", "/home/x", "/proc/sys/kernel/core_pattern"]
    paths += ["/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches"]
    # Opened and not written: a write here would change a setting of the kernel that runs the test.
    program = f"""
import os
for place in {paths!r}:
    try: print("opened", place, os.open(place, os.O_WRONLY | os.O_CREAT))
    except OSError: pass
"""
    assert await stand.said(python(program)) == ""
    assert list(stand.shelf.iterdir()) == []


async def test_command_does_not_have_roots_uid_outside(stand: Stand) -> None:
    seen: list[str] = []

    def look(_: str) -> None:
        for process in descendants(os.getpid()):
            status = Path(f"/proc/{process}/status").read_text()
            if "Name:\tsleep" in status:
                seen.append(status.split("Uid:\t")[1].splitlines()[0])

    await stand.run(SandboxCommand("sleep 60 & sleep 0.1; echo up; sleep 0.1"), look)
    assert seen
    assert "0" not in {number for line in seen for number in line.split()}


async def test_hostile_names_links_and_special_files_are_reported_and_not_followed(stand: Stand) -> None:
    canary = stand.folder / "canary"
    canary.write_text("untouched")
    program = f"""
import os, socket
os.symlink({str(canary)!r}, "link"); os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket")
open(b"bad\\xff", "w").close(); open("new\\nline", "w").close(); open("-rf", "w").close(); open("file", "w").write("x")
os.chmod("file", 0)
"""
    async with stand.begin() as view:
        result = await view.run(SandboxCommand(python(program)))
        assert result.exit_code == 0, result.output.text
        effect = await view.effect()
        kinds = {os.fsencode(entry.path): entry.kind for entry in effect}
        assert kinds.pop(b"link") is EntryType.LINK
        assert {name for name, kind in kinds.items() if kind is EntryType.SPECIAL} == {b"fifo", b"socket"}
        assert {name for name, kind in kinds.items() if kind is EntryType.FILE} == {
            b"bad\xff",
            b"new\nline",
            b"-rf",
            b"file",
        }
        by_path = {entry.path: entry for entry in effect}
        with effect.open(by_path["file"]) as body:
            assert body.read() == b"x"
        for path in ("link", "fifo", "socket"):
            with pytest.raises(ToolFailed):
                effect.open(by_path[path])
    assert canary.read_text() == "untouched"


async def test_whiteout_or_opaque_mark_cannot_be_forged(stand: Stand) -> None:
    (stand.tree / "d").mkdir()
    (stand.tree / "d" / "kept").write_text("kept")
    program = """
import os, stat
os.makedirs("d/new")
for name in ("user.overlay.opaque", "user.overlay.whiteout", "user.overlay.redirect"):
    for value in (b"y", b"/"):
        try: os.setxattr("d", name, value)
        except OSError: pass
try: os.mknod("d/other", stat.S_IFCHR | 0o600, 0)
except OSError: pass
"""
    async with stand.begin() as view:
        await view.run(SandboxCommand(python(program)))
        effect = [(entry.path, entry.change) for entry in await view.effect()]
    assert effect == [("d/new", EntryChange.CREATED)]


async def test_88_without_bubblewrap_commands_are_rejected_not_weakened(tmp_path: Path) -> None:
    sandbox = Sandbox(binary=str(tmp_path / "no-such-bwrap"))
    found = await sandbox.probe()
    assert (found.level, found.offered) == (IsolationLevel.NONE, False)
    with pytest.raises(ToolFailed, match=r"bubblewrap is not installed\. Install it"):
        await Stand(tmp_path, sandbox).run("echo weakened")


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that the unprivileged user of a root server can enter too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_88_sandbox_that_isolates_nothing_is_detected(anyones: Path) -> None:
    pretender = anyones / "bwrap"
    pretender.write_text("""#!/bin/bash
# bwrap --args NUMBER -- COMMAND
mapfile -d '' options <&"$2"
shift 2
set -- "${options[@]}" "$@"
while [ "$1" != -- ]; do
    [ "$1" = --json-status-fd ] && state=$2
    [ "$1" = --setenv ] && export "$2=$3"
    shift
done
shift
echo "{\\"child-pid\\": $$}" >&"$state"
"$@"
echo "{\\"exit-code\\": $?}" >&"$state"
""")
    pretender.chmod(0o755)
    found = await Sandbox(binary=str(pretender)).probe()
    assert (found.offered, found.overlay) == (False, False)
    assert {"host-network", "seccomp", "pid-namespace"} <= {gap.name for gap in found.gaps}
    assert "Commands are off" in (found.reason or "")
