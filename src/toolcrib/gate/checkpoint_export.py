"""Exports checkpoints of the audit log periodically, to a file or a URL outside the database."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import structlog

from toolcrib.gate.audit_seals import SealingRefused
from toolcrib.gate.audit_verification import AuditVerifier
from toolcrib.runtime.disk_threads import in_thread

log = structlog.get_logger(__name__)

# A receiver that does not answer in time is tried again in the next round.
_SECONDS = 10.0


class CheckpointExporter:
    """Appends each new checkpoint to ``file`` as a line, and posts it to ``url``."""

    def __init__(self, verifier: AuditVerifier, *, file: Path | None, url: str | None) -> None:
        self._verifier = verifier
        self._file = file
        self._url = url
        self._exported = 0

    async def run(self, every_seconds: float) -> None:
        """Export until cancelled. Failures are logged and retried."""
        if self._file is None and self._url is None:
            return
        while True:
            try:
                await self.export()
            except SealingRefused as denial:
                log.critical("audit.checkpoint_refused", reason=str(denial))
            except Exception:
                log.exception("audit.checkpoint_failed", remedy="It will be retried.")
            await asyncio.sleep(every_seconds)

    async def export(self) -> bool:
        """Export one checkpoint if the chain has a new seal. Returns whether it did."""
        checkpoint = await self._verifier.checkpoint()
        if checkpoint["number"] == self._exported:
            return False
        if self._file is not None:
            await in_thread(_append, self._file, checkpoint)
        if self._url is not None:
            async with httpx2.AsyncClient(timeout=_SECONDS, trust_env=False, follow_redirects=False) as client:
                answer = await client.post(self._url, json=checkpoint)
                answer.raise_for_status()
        self._exported = checkpoint["number"]
        return True


def _append(file: Path, checkpoint: dict[str, Any]) -> None:
    with file.open("a") as opened:
        opened.write(json.dumps(checkpoint) + "\n")
