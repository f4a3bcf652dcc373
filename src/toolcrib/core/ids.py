"""Typed identifiers. All are UUIDv7, so that they sort by creation time."""

import os
import threading
import time
from typing import NewType
from uuid import UUID

UserId = NewType("UserId", UUID)
AgentId = NewType("AgentId", UUID)
WorkspaceId = NewType("WorkspaceId", UUID)
SessionId = NewType("SessionId", UUID)
RunId = NewType("RunId", UUID)
CallId = NewType("CallId", UUID)
FileId = NewType("FileId", UUID)
VersionId = NewType("VersionId", UUID)
ChangeSetId = NewType("ChangeSetId", UUID)
TokenId = NewType("TokenId", UUID)
LoginId = NewType("LoginId", UUID)
KeyId = NewType("KeyId", UUID)
PauseId = NewType("PauseId", UUID)
GrantId = NewType("GrantId", UUID)
MessageId = NewType("MessageId", UUID)
ProcessId = NewType("ProcessId", UUID)
McpServerId = NewType("McpServerId", UUID)
BackgroundId = NewType("BackgroundId", UUID)
InvitationId = NewType("InvitationId", UUID)
ScheduleId = NewType("ScheduleId", UUID)

_lock = threading.Lock()
_last_ms = 0
_counter = 0


def new_id() -> UUID:
    """Return a UUIDv7 (RFC 9562) that is greater than every earlier one of this process."""
    global _last_ms, _counter
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms = now
            # The top bit starts clear, so that at least 2,048 ids fit in a millisecond.
            _counter = int.from_bytes(os.urandom(2), "big") & 0x7FF
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        head = _last_ms << 16 | 0x7 << 12 | _counter
    tail = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    return UUID(int=head << 64 | tail)
