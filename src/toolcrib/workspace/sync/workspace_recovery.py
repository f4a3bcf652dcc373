"""Recovers workspaces after a crash, each by itself: applies what was committed and is not on disk.

A server serves at once. A call that needs a workspace waits until that one is recovered; the others are recovered in
the background. A workspace whose recovery fails is quarantined: its calls get an error, and it is tried again later.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import (
    Conflict,
    Forbidden,
    HomeMoved,
    NotFound,
    Overloaded,
    Quarantined,
    Superseded,
    ToolcribError,
)
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.paths import Mount, mount_root
from toolcrib.runtime.logged_errors import error_kind
from toolcrib.storage.change_sets import ChangeSetStore
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.files import FileStore, list_pending
from toolcrib.storage.trash import TrashLimits
from toolcrib.workspace.fs.mounts import MountTable
from toolcrib.workspace.sync.crash_recovery import redo_pending

log = structlog.get_logger(__name__)

_ANYWHERE = mount_root(Mount.PROJECT)
# How long a call, or the background with its other workspaces, waits for one recovery.
_PATIENCE_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 300.0
# The background begins when the server listens, because it would delay that, or after this time.
_START_SECONDS = 10.0

# Checks the trees of a workspace in a home epoch, and recovers it.
Recover = Callable[[Tenant, int | None], Awaitable[int]]


@dataclass(slots=True)
class _Waiting:
    """A workspace that is not recovered yet. With a ``reason`` it is quarantined until ``retry_at``."""

    home_epoch: int | None = None
    reason: str = ""
    failures: int = 0
    retry_at: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class RecoveryStatus:
    """How many workspaces of this process wait for their recovery, and how many of them are quarantined."""

    waiting: int
    quarantined: int


class WorkspaceRecovery:
    """The recoveries of one process. ``TreeRebuilder.ensure`` lets nothing use a workspace before its recovery."""

    def __init__(
        self,
        files: FileStore,
        changes: ChangeSetStore,
        mounts: MountTable,
        *,
        node: str,
        trash: TrashLimits,
        at_once: int = 1,
    ) -> None:
        """Create it.

        Args:
            at_once: Each recovery holds a connection of the system role, which others need too.
        """
        self._files = files
        self._changes = changes
        self._mounts = mounts
        self._node = node
        self._trash = trash
        self._waiting: dict[WorkspaceId, _Waiting] = {}
        self._running: dict[WorkspaceId, asyncio.Task[int]] = {}
        self._room = asyncio.Semaphore(at_once)
        self._found = asyncio.Event()
        # Set when the server listens.
        self.is_serving = asyncio.Event()
        self._is_stopping = False

    @property
    def status(self) -> RecoveryStatus:
        """What is not recovered yet."""
        return RecoveryStatus(len(self._waiting), sum(bool(one.reason) for one in self._waiting.values()))

    async def find(self) -> None:
        """Look for workspaces of this node that a crash or another node left unfinished."""
        for workspace_id, home_epoch in (await self._files.workspaces_pending(self._node)).items():
            one = self._waiting.setdefault(workspace_id, _Waiting())
            one.home_epoch = home_epoch
        if self._waiting:
            log.info("recovery.found", workspaces=len(self._waiting))
            self._found.set()

    async def run(self, recover: Recover) -> None:
        """Recover what was found in the background, one after another, and what failed again and again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self.is_serving.wait()
        while True:
            now = time.monotonic()
            due = next((id_ for id_, one in self._waiting.items() if one.retry_at <= now), None)
            if due is not None:
                await self._try(due, recover)
                continue
            self._found.clear()
            next_at = min((one.retry_at for one in self._waiting.values()), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if next_at is None else max(0.0, next_at - now)):
                    await self._found.wait()

    async def recovered(self, workspace_id: WorkspaceId) -> None:
        """Wait until a workspace is recovered, however often that fails. For work that can wait: approved calls.

        Returns at once when the process stops: the caller then starts nothing either.
        """
        while not self._is_stopping and (one := self._waiting.get(workspace_id)) is not None:
            await one.ended.wait()

    async def settled(self, workspace_id: WorkspaceId) -> float | None:
        """Wait until a workspace is recovered or quarantined. Returns the seconds until the latter is tried again."""
        while not self._is_stopping and (one := self._waiting.get(workspace_id)) is not None:
            if one.reason:
                return max(_FIRST_RETRY_SECONDS, one.retry_at - time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_RETRY_SECONDS):
                    await one.ended.wait()
        return None

    async def stop(self) -> None:
        """Let nothing wait for a recovery any more."""
        self._is_stopping = True
        for one in self._waiting.values():
            one.ended.set()

    def is_waiting(self, workspace_id: WorkspaceId) -> bool:
        """Whether the workspace waits for a recovery that may be tried now."""
        one = self._waiting.get(workspace_id)
        return one is not None and one.retry_at <= time.monotonic()

    def require_usable(self, workspace_id: WorkspaceId) -> None:
        """Raise ``Quarantined`` if the recovery failed and is not to be tried again yet."""
        one = self._waiting.get(workspace_id)
        if one is not None and one.reason and (seconds := one.retry_at - time.monotonic()) > 0:
            raise Quarantined(one.reason, retry_after=seconds)

    async def recover(self, tenant: Tenant, home_epoch: int | None = None) -> int:
        """Apply every committed change of a workspace that a crash left pending. Returns the number of files.

        Calls that need the same workspace wait for one recovery, which goes on if they are cancelled.

        Args:
            home_epoch: Raise ``Superseded`` if the home's epoch is another one.

        Raises:
            Overloaded: It takes long. It goes on.
            Quarantined: It failed, now or a short while ago.
        """
        self.require_usable(tenant.workspace_id)
        task = self._running.get(tenant.workspace_id)
        if task is None:
            task = asyncio.create_task(self._recover(tenant, home_epoch))
            self._running[tenant.workspace_id] = task
            task.add_done_callback(lambda _: self._running.pop(tenant.workspace_id))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await asyncio.shield(task)
        except TimeoutError:
            # Of a great many files, or on a disk that hangs: it goes on, and holds up nobody else.
            raise Overloaded(
                "This workspace is being recovered after its server crashed, which takes long. Try again in a moment."
            ) from None

    async def _recover(self, tenant: Tenant, home_epoch: int | None) -> int:
        found = 0
        try:
            if await self._files.any_pending(tenant.workspace_id, node=self._node):
                async with self._room:
                    found = await self._redo(tenant, home_epoch)
        except (Conflict, Overloaded, Superseded, NotFound, Forbidden, OperationalError):
            # Of another process, another node, a deletion, or the database: not of this workspace's disk.
            raise
        except Exception as error:
            raise self._quarantine(tenant.workspace_id, error) from error
        self._end(tenant.workspace_id)
        if found:
            log.info("recovery.completed", workspace_id=str(tenant.workspace_id), files=found)
        return found

    async def _redo(self, tenant: Tenant, home_epoch: int | None) -> int:
        async with self._changes.lock(tenant, [], whole=True) as locked:
            home = (await locked.lookup([_ANYWHERE], WorkspaceRole.VIEWER)).home
            home.require(self._node)
            if home_epoch is None:
                self._mounts.require_current(tenant.workspace_id, home.epoch)
            elif home_epoch != home.epoch:
                raise HomeMoved("This workspace was on another node for a while. Call again.")
            async with locked.transaction() as connection:
                pending = await list_pending(connection, tenant)
            disk_of = self._mounts.disks_of(tenant.workspace_id, home.root_path)
            await redo_pending(locked, tenant, home, disk_of, pending, node=self._node, trash=self._trash)
        return len(pending)

    async def _try(self, workspace_id: WorkspaceId, recover: Recover) -> None:
        one = self._waiting[workspace_id]
        try:
            await recover(Tenant(workspace_id), one.home_epoch)
            self._end(workspace_id)
        except Quarantined:
            # Noted already.
            pass
        except (Superseded, NotFound, Forbidden):
            # It moved to another node, or was deleted.
            self._end(workspace_id)
        except (Conflict, Overloaded, OperationalError) as error:
            self._delay(one)
            log.warning("recovery.delayed", workspace_id=str(workspace_id), error=str(error))
        except Exception as error:  # noqa: BLE001 - one workspace must not stop the recovery of the others
            self._quarantine(workspace_id, error)

    def _end(self, workspace_id: WorkspaceId) -> None:
        if (one := self._waiting.pop(workspace_id, None)) is not None:
            one.ended.set()

    def _quarantine(self, workspace_id: WorkspaceId, error: Exception) -> Quarantined:
        one = self._waiting.setdefault(workspace_id, _Waiting())
        self._delay(one)
        one.reason = _reason(error)
        seconds = one.retry_at - time.monotonic()
        is_expected = isinstance(error, OSError | ToolcribError)
        log.error(
            "recovery.failed",
            workspace_id=str(workspace_id),
            error=str(error) if is_expected else error_kind(error),
            failures=one.failures,
            retry_seconds=round(seconds),
            remedy="Make the workspace's directory writable, with enough free space. It is retried.",
            exc_info=None if is_expected else error,
        )
        # The background's wait may be longer than this one's.
        self._found.set()
        return Quarantined(one.reason, retry_after=seconds)

    @staticmethod
    def _delay(one: _Waiting) -> None:
        one.failures += 1
        delay = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2 ** min(one.failures - 1, 16))
        one.retry_at = time.monotonic() + delay


def _reason(error: Exception) -> str:
    """Say why, without paths of this machine."""
    match error:
        case OSError(strerror=str(words)):
            return words
        case ToolcribError():
            return error.message.rstrip(".")
        case _:
            return "an internal error, which the server's log explains"
