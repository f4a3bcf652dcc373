"""Builders for these tests: a person, agents with given rules, and tools by name."""

from dataclasses import dataclass
from typing import Any

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller, SessionMode
from toolcrib.core.ids import AgentId, UserId, WorkspaceId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, ToolCategory


@dataclass(frozen=True)
class Tool:
    name: str
    danger: Danger = Danger.SAFE
    toolset: str = "workspace"
    category: ToolCategory = ToolCategory.FILE
    drafts: bool = False
    replannable: bool = True
    declared_read_only: bool = False
    modes: frozenset[SessionMode] = frozenset(SessionMode)
    plan_files_only: bool = False

    @property
    def read_only(self) -> bool:
        return self.danger is Danger.SAFE


READ = Tool("read")
WRITE = Tool("write", Danger.DANGEROUS)
BASH = Tool("bash", Danger.DANGEROUS, "studio")

ALL_ALLOWED = {name: {"allowed": True} for name in ("read", "write", "cat", "mv", "bash")}


def rules(**fields: Any) -> AgentRules:
    return AgentRules.model_validate(fields)


def person() -> Caller:
    return Caller(WorkspaceId(new_id()), UserId(new_id()))


def agent(**fields: Any) -> Caller:
    """An agent that may use every tool of these tests, except where ``fields`` differ."""
    bound = rules(**{"tool_permissions": ALL_ALLOWED, **fields})
    return Caller(WorkspaceId(new_id()), UserId(new_id()), agent=Agent(AgentId(new_id()), "coder", bound))


def project(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)
