"""Why a connection is closed, as the code and the words that its client sees."""

from enum import IntEnum
from typing import Final

from toolcrib.domain.errors import Forbidden, ToolcribError, Unauthenticated

# What fits beside the code in a closing frame.
_MAX_REASON_BYTES: Final = 123


class Code(IntEnum):
    """Ours begin at 4400 and follow HTTP's statuses where there is a like one."""

    NORMAL = 1000
    UNAUTHENTICATED = 4401
    FORBIDDEN = 4403
    SILENT = 4408
    TOO_SLOW = 4409
    TOO_MANY = 4429
    OUR_FAULT = 4500


class Ending(Exception):
    """Ends the connection."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def short_reason(self) -> str:
        return self.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")


def too_slow() -> Ending:
    return Ending(Code.TOO_SLOW, "You did not take what was sent. Connect again and resume: nothing is lost.")


def silent() -> Ending:
    return Ending(Code.SILENT, 'Nobody said who they are. Send {"type": "auth", "payload": {"token": …}} first.')


def ending_of(error: ToolcribError) -> Ending | None:
    """The end that an error means for the whole connection; none if it is about one message only."""
    match error:
        case Unauthenticated():
            return Ending(Code.UNAUTHENTICATED, error.message)
        case Forbidden():
            return Ending(Code.FORBIDDEN, error.message)
    return None
