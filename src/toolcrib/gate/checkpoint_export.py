"""Exports checkpoints of the audit log at intervals, to a file or an address outside the database."""

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

# A witness that does not answer is asked again at the next time.
_SECONDS = 10.0


class CheckpointExporter:
    """Appends each new checkpoint to ``file`` as a line, and posts it to ``url``."""

    def __init__(self, verifier: AuditVerifier, *, file: Path | None, url: str | None) -> None:
        self._verifier = verifier
        self._file = file
        self._url = url
        self._exported = 0

    async def run(self, every_seconds: float) -> None:
        """Exports until it is cancelled. A failure is logged and tried again."""
        if self._file is None and self._url is None:
            return
        while True:
            try:
                await self.export()
            except SealingRefused as refusal:
                log.critical("audit.checkpoint_refused", reason=str(refusal))
            except Exception:
                log.exception("audit.checkpoint_failed", remedy="It is tried again.")
            await asyncio.sleep(every_seconds)

    async def export(self) -> bool:
        """Exports one checkpoint, if there is a seal since the last one."""
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
