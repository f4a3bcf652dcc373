"""The public interface of the sandbox: isolation probe and transactions. Runs nothing below the minimum level.

The probe verifies isolation at start by attempting to escape. It concludes nothing from versions or settings.
"""

import asyncio
import hashlib
import inspect
import json
import os
import shlex
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from toolcrib.core.errors import ToolcribError, ToolFailed
from toolcrib.sandbox import escape_attempts, resource_limits
from toolcrib.sandbox.bubblewrap import INTERPRETER, ViewMount, find_bubblewrap
from toolcrib.sandbox.command import CommandResult, SandboxCommand
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.resource_limits import MIB, ResourceLimits
from toolcrib.sandbox.transaction import Dispose, StagingDirectory, Transaction, dropped

LARGEST_COPY: Final = 512 * MIB
_PROBED_COPY: Final = 64 * MIB
# Half a second is usual. On a very busy machine, a slow answer is not an escape.
_SECONDS: Final = 120.0
_MOST_PROCESSES: Final = 20
_FORKS: Final = 100
_SMALL: Final = ResourceLimits(memory_bytes=256 * MIB, processes=24)
_SYSTEM_REMEDY: Final = (
    "Allow user namespaces to bubblewrap: sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 "
    "where it exists, an AppArmor profile for /usr/bin/bwrap where kernel.apparmor_restrict_unprivileged_userns=1, "
    "and in a container the seccomp profile deploy/seccomp.json, which allows unshare and mount "
    "(--security-opt seccomp=seccomp.json; in Kubernetes, seccompProfile: Localhost), and where AppArmor is in use "
    "--security-opt apparmor=unconfined."
)
_PROC_REMEDY: Final = (
    "Let the container see all of /proc: podman run --security-opt unmask=ALL, docker run --security-opt "
    "systempaths=unconfined, in Kubernetes procMount: Unmasked with hostUsers: false. In a systemd unit, remove "
    "ProtectKernelTunables, ProtectKernelLogs, ProtectProc and ProcSubset."
)
# What bubblewrap needs of the kernel, one after the other, to tell which of it is missing.
_STEPS: Final = (
    ("new-namespaces", ("--unshare-user",), "Namespaces cannot be created", _SYSTEM_REMEDY),
    (
        "new-proc",
        ("--unshare-pid", "--proc", "/proc"),
        "A new /proc cannot be mounted, as this one is masked",
        _PROC_REMEDY,
    ),
    ("new-network", ("--unshare-net",), "A network namespace cannot be created", _SYSTEM_REMEDY),
)
_OVERLAY_REMEDY: Final = (
    "Commands run on a copy of the tree, up to a size limit. Overlays for users need Linux 5.11 or newer, and a data "
    "directory on a file system such as ext4, XFS, Btrfs or tmpfs: not NFS, and in a container a volume."
)
_FORK_BOMB: Final = f"""
import os, sys, time
made = 0
for _ in range({_FORKS}):
    try:
        if os.fork() == 0:
            time.sleep({_SECONDS})
            os._exit(0)
    except OSError:
        break
    made += 1
sys.stdout.write(str(made))
"""
# Ends by itself once it got far more memory than it may have.
_MEMORY_BOMB: Final = "held = [bytearray(1 << 20) for _ in range(4096)]"


class IsolationLevel(StrEnum):
    """From the strongest to none. Commands run at ``namespaces`` only."""

    NAMESPACES = "namespaces"
    PROCESS = "process"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class IsolationGap:
    """One missing protection. An ``open`` gap lowers the level; the others are compensated in another way."""

    name: str
    fact: str
    remedy: str
    open: bool = True


@dataclass(frozen=True, slots=True)
class Isolation:
    """The result of the probe: the actual level, what works and what is missing."""

    level: IsolationLevel
    held: tuple[str, ...]
    gaps: tuple[IsolationGap, ...]
    overlay: bool
    minimum: IsolationLevel = IsolationLevel.NAMESPACES

    @property
    def offered(self) -> bool:
        """Whether commands may run at all."""
        return self.level is self.minimum

    @property
    def reason(self) -> str | None:
        """Why commands are off, with the remedy; None if they are on."""
        if self.offered:
            return None
        faults = "; ".join(f"{gap.fact} {gap.remedy}" for gap in self.gaps if gap.open)
        return f"Commands are off: isolation is '{self.level}' and '{self.minimum}' is required. {faults}".rstrip()


class Sandbox:
    """One per server. Runs nothing until ``probe`` has verified isolation."""

    def __init__(
        self,
        *,
        staging: Path | None = None,
        binary: str | None = None,
        overlay: bool = True,
        largest_copy: int = LARGEST_COPY,
        network: EgressNetwork | None = None,
    ) -> None:
        """``staging``: the directory of the commands' transactions. Its file system decides whether overlays work."""
        self._staging = staging
        self._binary = binary or find_bubblewrap()
        self._overlay = overlay
        self._largest_copy = largest_copy
        self._network = network or EgressNetwork()
        self._isolation: Isolation | None = None
        self._probing = asyncio.Lock()

    @property
    def isolation(self) -> Isolation | None:
        """What ``probe`` found, once it has ended."""
        return self._isolation

    @property
    def network(self) -> EgressNetwork:
        """What commands with hosts may contact."""
        return self._network

    @property
    def binary(self) -> str:
        """The path of bubblewrap. Only valid where commands are on."""
        assert self._binary
        return self._binary

    async def probe(self) -> Isolation:
        """Return the isolation, determined by attempted escapes at the first call and cached."""
        async with self._probing:
            if self._isolation is None:
                self._isolation = await _probe(self._binary, self._staging, overlay=self._overlay)
            return self._isolation

    async def require(self) -> Isolation:
        """Return the isolation. Raises ``ToolFailed`` with the reason if commands are off."""
        isolation = await self.probe()
        if isolation.reason:
            raise ToolFailed(f"{isolation.reason} `toolcrib doctor` shows it in full.")
        return isolation

    @asynccontextmanager
    async def transaction(
        self,
        mounts: Sequence[ViewMount],
        staging: Path,
        *,
        dispose: Dispose = dropped,
        network: EgressNetwork | None = None,
    ) -> AsyncIterator[Transaction]:
        """Open copy-on-write views of ``mounts`` in a new folder below ``staging``.

        Raises ``ToolFailed`` if commands are off.

        At the end, ``dispose`` receives the folder, which is no longer needed.
        """
        isolation = await self.require()
        async with Transaction(
            mounts,
            staging,
            overlay=isolation.overlay,
            binary=self.binary,
            largest_copy=self._largest_copy,
            network=network or self._network,
            dispose=dispose,
        ) as transaction:
            yield transaction


async def _probe(binary: str | None, staging: Path | None, *, overlay: bool) -> Isolation:
    """Determine the isolation level, what works and what is missing. Takes about half a second."""
    if binary is None or not os.access(binary, os.X_OK):
        missing = IsolationGap("bubblewrap", "bubblewrap is not installed.", "Install it: apt-get install bubblewrap.")
        return Isolation(IsolationLevel.NONE, (), (missing,), overlay=False)
    with _probed_folder(staging) as folder:
        probe = _Probe(folder, binary)
        has_overlay = overlay and await probe.overlay_works()
        await probe.attempt(overlay=has_overlay)
    probe.note_system()
    level = IsolationLevel.NONE if any(gap.open for gap in probe.gaps) else IsolationLevel.NAMESPACES
    return Isolation(level, tuple(probe.held), tuple(probe.gaps), overlay=has_overlay)


@contextmanager
def _probed_folder(staging: Path | None) -> Iterator[Path]:
    if staging is None:
        with tempfile.TemporaryDirectory(prefix="toolcrib-probe-") as unused:
            yield Path(unused)
        return
    own = StagingDirectory(staging)
    try:
        folder = own.folder / "probe"
        folder.mkdir()
        yield folder
    finally:
        own.close()


_NO_CGROUPS: Final = IsolationGap(
    "cgroups",
    "Control groups with limits are not available; a monitor stops processes over a limit within 2 seconds.",
    "In cgroup v2, a group with processes cannot delegate, so the server needs its own group inside the "
    "delegated one. With systemd 254 or newer: Delegate=cpu memory pids and DelegateSubgroup=server. "
    "Otherwise: create a group, give it, its cgroup.procs and its cgroup.subtree_control to the server's user, "
    "and start the server in a subgroup; the group itself must not contain processes.",
    open=False,
)
_ROOT: Final = IsolationGap(
    "root",
    "The server runs as root. Commands run under a number that owns nothing; the tree's owner is mapped to it.",
    "Run the server as an ordinary user.",
    open=False,
)


class _Probe:
    """A small tree with canaries around it, and what the attempts on it found."""

    def __init__(self, folder: Path, binary: str) -> None:
        self.held: list[str] = []
        self.gaps: list[IsolationGap] = []
        self._folder = folder
        self._binary = binary
        self._tree = folder / "tree"
        self._read_only = folder / "shelf"
        self._canary = folder / "canary"
        for made in (self._tree, self._read_only, folder / "staging"):
            made.mkdir()
        self._canary.write_text("outside")
        (self._tree / "kept").write_text("before")

    async def overlay_works(self) -> bool:
        """Whether a command's write goes to the overlay and is reported as its effect."""
        try:
            async with self._begin(overlay=True) as view:
                result = await view.run(SandboxCommand("echo after > kept", seconds=_SECONDS))
                paths = [entry.path for entry in await view.effect()]
            if result.exit_code == 0 and paths == ["kept"] and (self._tree / "kept").read_text() == "before":
                self.held.append("overlay")
                return True
            fact = f"A write in an overlay did not come back: {result.output.text.strip()[:200]}"
        except (ToolcribError, OSError) as error:
            fact = f"No overlay could be mounted in {self._folder.parent}: {error}"
        self.gaps.append(IsolationGap("overlay", fact, _OVERLAY_REMEDY, open=False))
        return False

    async def attempt(self, *, overlay: bool) -> None:
        """Try to escape and to exceed limits."""
        try:
            async with self._begin(overlay=overlay) as view:
                found = await self._escapes(view)
            # Start bombs only where something contains them.
            if all(found.values()):
                async with self._begin(overlay=overlay) as view:
                    found |= await self._bombs(view)
                async with self._begin(overlay=overlay) as view:
                    found["no-survivors"] = await self._nothing_survives(view)
        except (ToolcribError, OSError, ValueError) as error:
            missing = await asyncio.to_thread(_missing, self._binary)
            fallback = IsolationGap("sandbox", f"No command could be run in a sandbox: {error}", _SYSTEM_REMEDY)
            self.gaps.append(missing or fallback)
            return
        for name, holds in found.items():
            if holds:
                self.held.append(name)
            else:
                self.gaps.append(IsolationGap(name, f"An attempted escape succeeded: {name}.", _SYSTEM_REMEDY))

    def note_system(self) -> None:
        """Note cgroups, and whether the server is root."""
        if resource_limits.available():
            self.held.append("cgroups")
        else:
            self.gaps.append(_NO_CGROUPS)
        if os.geteuid() != 0:
            self.held.append("unprivileged-server")
        else:
            self.gaps.append(_ROOT)

    async def _escapes(self, view: Transaction) -> dict[str, bool]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            aims = {
                "canary": str(self._canary),
                "port": listener.getsockname()[1],
                "environment": _digest_of_our_environment(),
                "unwritable": ["/shelf/x", "/usr/x", "/etc/x", "/dev/x", "/x", "/proc/sys/kernel/core_pattern"],
                "writable": "/tree",
                "most_processes": _MOST_PROCESSES,
            }
            result = await view.run(_python(inspect.getsource(escape_attempts), json.dumps(aims)))
        output = _output(result)
        try:
            found: dict[str, bool] = json.loads(output)
        except ValueError:
            raise ValueError(f"the probe printed {output[:300]!r} instead of its findings") from None
        return found

    async def _bombs(self, view: Transaction) -> dict[str, bool]:
        forks = await view.run(_python(_FORK_BOMB, limits=_SMALL))
        memory = await view.run(_python(_MEMORY_BOMB, limits=_SMALL))
        return {
            "fork-bomb": bool(forks.stopped) or int(_output(forks)) < _FORKS,
            "memory-bomb": memory.exit_code != 0 and not memory.timed_out,
        }

    async def _nothing_survives(self, view: Transaction) -> bool:
        mark = f"toolcrib-survivor-{os.urandom(8).hex()}"
        # It detaches, ignores signals that ask it to end, and reports when it is up.
        script = f"(setsid sh -c 'trap \"\" TERM HUP; echo up; : {mark}; read _ < /tmp/never' &) > /tmp/said; "
        await view.run(
            SandboxCommand(f"mkfifo /tmp/never; {script} while ! grep -q up /tmp/said; do :; done", seconds=_SECONDS)
        )
        return not await asyncio.to_thread(_runs, mark)

    def _begin(self, *, overlay: bool) -> Transaction:
        mounts = [
            ViewMount("tree", self._tree, "/tree", writable=True),
            ViewMount("shelf", self._read_only, "/shelf"),
        ]
        staging = self._folder / "staging"
        return Transaction(mounts, staging, overlay=overlay, binary=self._binary, largest_copy=_PROBED_COPY)


def _missing(binary: str) -> IsolationGap | None:
    """Find the first thing that bubblewrap needs and does not get here. None if it gets all."""
    arguments = [binary, "--ro-bind", "/", "/"]
    for name, more, fact, remedy in _STEPS:
        arguments += more
        ended = subprocess.run([*arguments, "true"], capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
        if ended.returncode != 0:
            return IsolationGap(name, f"{fact}: {ended.stderr.strip()[-300:]}.", remedy)
    return None


def _digest_of_our_environment() -> str:
    return hashlib.sha256(Path("/proc/self/environ").read_bytes()).hexdigest()


def _python(program: str, argument: str = "", *, limits: ResourceLimits | None = None) -> SandboxCommand:
    env = {"PROGRAM": program, "ARGUMENT": argument}
    text = f'exec {shlex.quote(INTERPRETER)} -I -S -c "$PROGRAM" "$ARGUMENT"'
    return SandboxCommand(text, env=env, seconds=_SECONDS, limits=limits or ResourceLimits())


def _output(result: CommandResult) -> str:
    if result.exit_code != 0:
        raise ValueError(f"the probe ended with {result.exit_code}: {result.output.text.strip()[-300:]}")
    return result.output.text


def _runs(mark: str) -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in process.read_bytes():
                return True
        except OSError:
            continue
    return False
