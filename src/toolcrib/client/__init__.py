"""A typed client of the HTTP API, for the CLI, for tests and for other programs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.client.api_client import Client as Client
    from toolcrib.client.http_client import ServerUnavailable as ServerUnavailable
    from toolcrib.client.http_client import ServerUnreachable as ServerUnreachable
    from toolcrib.schemas.accounts import ApiKeyOut as ApiKeyOut
    from toolcrib.schemas.accounts import UserOut as UserOut
    from toolcrib.schemas.agents import AgentOut as AgentOut
    from toolcrib.schemas.agents import PackageOut as PackageOut
    from toolcrib.schemas.audit import AuditRecordOut as AuditRecordOut
    from toolcrib.schemas.audit import AuditVerificationOut as AuditVerificationOut
    from toolcrib.schemas.mcp_servers import McpServerOut as McpServerOut
    from toolcrib.schemas.mcp_servers import McpToolOut as McpToolOut
    from toolcrib.schemas.models import ModelOut as ModelOut
    from toolcrib.schemas.models import ProviderCredentialsOut as ProviderCredentialsOut
    from toolcrib.schemas.paused_calls import ApprovalOut as ApprovalOut
    from toolcrib.schemas.paused_calls import GrantRuleOut as GrantRuleOut
    from toolcrib.schemas.paused_calls import PausedCallOut as PausedCallOut
    from toolcrib.schemas.paused_calls import QuestionOut as QuestionOut
    from toolcrib.schemas.paused_calls import QuestionPauseOut as QuestionPauseOut
    from toolcrib.schemas.reviews import FileDecisionIn as FileDecisionIn
    from toolcrib.schemas.reviews import ReviewDecisionOut as ReviewDecisionOut
    from toolcrib.schemas.reviews import ReviewFileOut as ReviewFileOut
    from toolcrib.schemas.reviews import ReviewHunkOut as ReviewHunkOut
    from toolcrib.schemas.reviews import ReviewOut as ReviewOut
    from toolcrib.schemas.schedules import ScheduleOut as ScheduleOut
    from toolcrib.schemas.sessions import CostOut as CostOut
    from toolcrib.schemas.sessions import MessageOut as MessageOut
    from toolcrib.schemas.sessions import RunOut as RunOut
    from toolcrib.schemas.sessions import SessionOut as SessionOut
    from toolcrib.schemas.sessions import StreamMessage as StreamMessage
    from toolcrib.schemas.tool_calls import StoredCallOut as StoredCallOut
    from toolcrib.schemas.workspaces import BudgetOut as BudgetOut
    from toolcrib.schemas.workspaces import WorkspaceOut as WorkspaceOut

# Imported on first use: a command that only formats a response needs neither the client nor every wire type.
_OFFERED = {
    "Client": "toolcrib.client.api_client",
    **dict.fromkeys(("ServerUnavailable", "ServerUnreachable"), "toolcrib.client.http_client"),
    **dict.fromkeys(("ApiKeyOut", "UserOut"), "toolcrib.schemas.accounts"),
    **dict.fromkeys(("AgentOut", "PackageOut"), "toolcrib.schemas.agents"),
    **dict.fromkeys(("AuditRecordOut", "AuditVerificationOut"), "toolcrib.schemas.audit"),
    **dict.fromkeys(("McpServerOut", "McpToolOut"), "toolcrib.schemas.mcp_servers"),
    **dict.fromkeys(("ModelOut", "ProviderCredentialsOut"), "toolcrib.schemas.models"),
    **dict.fromkeys(
        ("ApprovalOut", "GrantRuleOut", "PausedCallOut", "QuestionOut", "QuestionPauseOut"),
        "toolcrib.schemas.paused_calls",
    ),
    **dict.fromkeys(
        ("FileDecisionIn", "ReviewDecisionOut", "ReviewFileOut", "ReviewHunkOut", "ReviewOut"),
        "toolcrib.schemas.reviews",
    ),
    "ScheduleOut": "toolcrib.schemas.schedules",
    **dict.fromkeys(("CostOut", "MessageOut", "RunOut", "SessionOut", "StreamMessage"), "toolcrib.schemas.sessions"),
    "StoredCallOut": "toolcrib.schemas.tool_calls",
    **dict.fromkeys(("BudgetOut", "WorkspaceOut"), "toolcrib.schemas.workspaces"),
}


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
