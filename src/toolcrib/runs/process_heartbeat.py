"""The heartbeat of this process, sent from a thread: a busy event loop must not look dead."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from uuid import UUID

import structlog

from toolcrib.core.errors import Misconfigured
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.runtime.logged_errors import error_kind
from toolcrib.storage.server_processes import HeartbeatConnection

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 1.0


class ProcessHeartbeat:
    """Beats four times per lease. After half a lease of silence, other processes may take over at any moment."""

    def __init__(
        self,
        dsn: str,
        *,
        node: str,
        lease: float,
        process_id: ProcessId | None = None,
        disk_id: UUID | None = None,
        address: str | None = None,
    ) -> None:
        self.id = process_id or ProcessId(new_id())
        self.lease = lease
        # A beat without an answer is tried again on a new connection, while the lease lasts.
        self._connection = HeartbeatConnection(
            dsn, self.id, node, disk_id, address=address, answer_seconds=max(1.0, lease / 4)
        )
        self._last = self._steady_since = time.monotonic()
        self._slept = False
        # The last beat did not reach the database.
        self.has_failed = False
        self._stop = threading.Event()

    @classmethod
    @contextmanager
    def start(
        cls,
        dsn: str,
        *,
        node: str,
        lease: float,
        process_id: ProcessId | None = None,
        disk_id: UUID | None = None,
        address: str | None = None,
    ) -> Iterator[Self]:
        """Start the heartbeat thread. On exit, stop it and remove the process: its claims are free at once.

        Args:
            address: The URL of this process's internal listener, to which other nodes forward calls.

        Raises:
            Misconfigured: A live process of this node uses another disk.
        """
        heartbeat = cls(dsn, node=node, lease=lease, process_id=process_id, disk_id=disk_id, address=address)
        # A server that was killed, or whose database was restored elsewhere, counts as alive for a lease.
        until = time.monotonic() + lease + _PATIENCE_SECONDS
        while not heartbeat._connection.register(lease=lease):
            if time.monotonic() > until:
                heartbeat._connection.close()
                raise Misconfigured(
                    f"Another server is node {node!r}, with another data directory. Give each node its own "
                    "TOOLCRIB_NODE_NAME."
                )
            log.warning("heartbeat.waits_for_another_disk", node=node)
            time.sleep(_PATIENCE_SECONDS)
        heartbeat._last = heartbeat._steady_since = time.monotonic()
        thread = threading.Thread(target=heartbeat._beat_for_ever, name="toolcrib-heart", daemon=True)
        thread.start()
        try:
            yield heartbeat
        finally:
            heartbeat._stop.set()
            thread.join(timeout=10)

    def is_lost(self) -> bool:
        """Return whether there was no beat for half a lease, or a gap of a whole one since the last check."""
        lost, self._slept = self._slept or self._silent_seconds > self.lease / 2, False
        return lost

    @property
    def is_alive(self) -> bool:
        """Whether the last beat is less than a lease ago. If not, others may have taken this node's workspaces over."""
        return self._silent_seconds < self.lease

    def database_time(self) -> float:
        """Return the time by the database's clock, in seconds since 1970. It is the same for all nodes."""
        return self._connection.database_time()

    @property
    def is_steady(self) -> bool:
        """Whether the last half lease had no gap. If it had, others seem silent for the same reason as this process."""
        return self._silent_seconds < self.lease / 2 < time.monotonic() - self._steady_since

    @property
    def _silent_seconds(self) -> float:
        return time.monotonic() - self._last

    def _beat_for_ever(self) -> None:
        while not self._stop.wait(self.lease / 4):
            try:
                self._connection.beat()
                self.has_failed = False
                # A process that was suspended for a while may beat again before ``is_lost`` is read.
                self._slept = self._slept or self._silent_seconds > self.lease
                if self._silent_seconds > self.lease / 2:
                    self._steady_since = time.monotonic()
                self._last = time.monotonic()
            except Exception as error:  # noqa: BLE001 - whatever the error is, the next beat is tried
                self.has_failed = True
                log.warning("heartbeat.failed", error=error_kind(error))
        try:
            self._connection.remove()
        except Exception as error:  # noqa: BLE001 - others find out after the lease
            log.warning("heartbeat.remove_failed", error=error_kind(error))
        self._connection.close()
