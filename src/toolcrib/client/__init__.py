"""A typed client of the HTTP API, for the command line, for tests, and for programs of one's own."""

from toolcrib.client.client import Client
from toolcrib.client.http import NoAnswer, Unavailable
from toolcrib.client.shapes import (
    Access,
    Agent,
    Approval,
    KeptCall,
    Key,
    McpServer,
    McpTool,
    Message,
    Model,
    Person,
    Question,
    Record,
    Rule,
    Run,
    Session,
    Told,
    Verified,
    Workspace,
)

__all__ = [
    "Access",
    "Agent",
    "Approval",
    "Client",
    "KeptCall",
    "Key",
    "McpServer",
    "McpTool",
    "Message",
    "Model",
    "NoAnswer",
    "Person",
    "Question",
    "Record",
    "Rule",
    "Run",
    "Session",
    "Told",
    "Unavailable",
    "Verified",
    "Workspace",
]
