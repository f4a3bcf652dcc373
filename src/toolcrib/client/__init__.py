"""A typed client of the HTTP API, for the CLI, for tests and for other programs."""

from toolcrib.client.api_client import Client
from toolcrib.client.http_client import ServerUnavailable, ServerUnreachable
from toolcrib.schemas.accounts import ApiKeyOut, UserOut
from toolcrib.schemas.agents import AgentOut, PackageOut
from toolcrib.schemas.audit import AuditRecordOut, AuditVerificationOut
from toolcrib.schemas.mcp_servers import McpServerOut, McpToolOut
from toolcrib.schemas.models import ModelOut, ProviderCredentialsOut
from toolcrib.schemas.paused_calls import ApprovalOut, GrantRuleOut, PausedCallOut, QuestionOut, QuestionPauseOut
from toolcrib.schemas.reviews import FileDecisionIn, ReviewDecisionOut, ReviewFileOut, ReviewHunkOut, ReviewOut
from toolcrib.schemas.schedules import ScheduleOut
from toolcrib.schemas.sessions import CostOut, MessageOut, RunOut, SessionOut, StreamMessage
from toolcrib.schemas.tool_calls import StoredCallOut
from toolcrib.schemas.workspaces import WorkspaceOut

__all__ = [
    "AgentOut",
    "ApiKeyOut",
    "ApprovalOut",
    "AuditRecordOut",
    "AuditVerificationOut",
    "Client",
    "CostOut",
    "FileDecisionIn",
    "GrantRuleOut",
    "McpServerOut",
    "McpToolOut",
    "MessageOut",
    "ModelOut",
    "PackageOut",
    "PausedCallOut",
    "ProviderCredentialsOut",
    "QuestionOut",
    "QuestionPauseOut",
    "ReviewDecisionOut",
    "ReviewFileOut",
    "ReviewHunkOut",
    "ReviewOut",
    "RunOut",
    "ScheduleOut",
    "ServerUnavailable",
    "ServerUnreachable",
    "SessionOut",
    "StoredCallOut",
    "StreamMessage",
    "UserOut",
    "WorkspaceOut",
]
