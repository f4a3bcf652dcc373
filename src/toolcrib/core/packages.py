"""Agent packages: the contents of an archive, and the workflow of its runs. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from toolcrib.core.agents import AgentRules
from toolcrib.core.ids import UserId
from toolcrib.core.paths import Mount, WorkspacePath

# Where a run stores its workflow document.
WORKFLOW: Final = WorkspacePath(Mount.STATE, "/workflow.md")


@dataclass(frozen=True, slots=True)
class Workflow:
    """The steps, their transitions and the schema of the document. ``start`` is the first step."""

    start: str
    nodes: frozenset[str]
    edges: frozenset[tuple[str, str]]
    schema: Mapping[str, Any] | None = None

    def next_after(self, node: str) -> tuple[str, ...]:
        """Return the possible next steps."""
        return tuple(sorted(target for origin, target in self.edges if origin == node))

    def as_json(self) -> dict[str, Any]:
        """Encode for storage with a package, and with every run of it."""
        edges = [list(edge) for edge in sorted(self.edges)]
        return {"start": self.start, "nodes": sorted(self.nodes), "edges": edges, "schema": self.schema}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Workflow":
        edges = frozenset((origin, target) for origin, target in kept["edges"])
        return cls(kept["start"], frozenset(kept["nodes"]), edges, kept["schema"])


@dataclass(frozen=True, slots=True)
class PackageAgent:
    """An agent of a package. ``rules`` are those of the definition, before ceilings apply."""

    name: str
    definition: str
    rules: AgentRules


@dataclass(frozen=True, slots=True)
class PackageContents:
    """A valid, parsed archive. ``document`` is its ``workflow.md``."""

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
    """An installed package. ``agents`` are the names of its agents in the workspace."""

    name: str
    version: str
    sha256: bytes
    files: int
    size: int
    agents: tuple[str, ...]
    has_workflow: bool
    installed_by: UserId
    installed_at: datetime
