"""Agent packages: what an archive holds, and the workflow that runs of it follow. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from toolcrib.core.agents import AgentRules
from toolcrib.core.ids import UserId
from toolcrib.core.paths import Mount, WorkspacePath

# Where a run keeps its workflow's document.
WORKFLOW: Final = WorkspacePath(Mount.STATE, "/workflow.md")


@dataclass(frozen=True, slots=True)
class Workflow:
    """Which step may follow which, and what the document must look like. ``start`` is the first step."""

    start: str
    nodes: frozenset[str]
    edges: frozenset[tuple[str, str]]
    schema: Mapping[str, Any] | None = None

    def next_after(self, node: str) -> tuple[str, ...]:
        return tuple(sorted(target for origin, target in self.edges if origin == node))

    def as_json(self) -> dict[str, Any]:
        """As it is kept with a package, and with every run of it."""
        edges = [list(edge) for edge in sorted(self.edges)]
        return {"start": self.start, "nodes": sorted(self.nodes), "edges": edges, "schema": self.schema}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Workflow":
        edges = frozenset((origin, target) for origin, target in kept["edges"])
        return cls(kept["start"], frozenset(kept["nodes"]), edges, kept["schema"])


@dataclass(frozen=True, slots=True)
class PackageAgent:
    """An agent that a package brings. ``rules`` are what the definition says, before they are bounded."""

    name: str
    definition: str
    rules: AgentRules


@dataclass(frozen=True, slots=True)
class PackageContents:
    """An archive that was read and found good. ``document`` is its ``workflow.md``."""

    name: str
    version: str
    sha256: bytes
    files: tuple[tuple[str, bytes], ...]
    agents: tuple[PackageAgent, ...]
    document: bytes | None
    workflow: Workflow | None

    @property
    def size(self) -> int:
        return sum(len(body) for _, body in self.files)


@dataclass(frozen=True, slots=True)
class Package:
    """A package as it is installed. ``agents`` are the names that its agents have in the workspace."""

    name: str
    version: str
    sha256: bytes
    files: int
    size: int
    agents: tuple[str, ...]
    has_workflow: bool
    installed_by: UserId
    installed_at: datetime
