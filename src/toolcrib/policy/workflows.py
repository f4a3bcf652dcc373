"""Decides whether a workflow document may change: by its schema and its transitions."""

from collections.abc import Mapping
from typing import Any

from toolcrib.core.errors import InvalidTransition, SchemaMismatch
from toolcrib.core.packages import Workflow


def require_step(workflow: Workflow, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
    """Raise ``SchemaMismatch`` or ``InvalidTransition`` unless the frontmatter may become ``after``.

    ``after`` already matches the schema. ``before`` is ``None`` without a readable document: then the workflow
    restarts.
    """
    if flaw := shape_flaw(after):
        raise mismatch(flaw)
    origin, target = _node(workflow, before), _node(workflow, after)
    if before is None and target != workflow.start:
        raise refused(workflow, f"Without a readable document, the workflow starts at {workflow.start!r}.")
    if target not in workflow.nodes:
        raise refused(workflow, f"The workflow has no step {target[:200]!r}.", origin)
    if before is not None and target != origin and (origin, target) not in workflow.edges:
        raise refused(workflow, f"The workflow does not lead from {origin[:200]!r} to {target!r}.", origin)
    _require_steps(workflow, _steps(before), _steps(after), origin)


def shape_flaw(document: Mapping[str, Any]) -> str | None:
    """Return why no workflow can have this frontmatter, whatever its schema, or ``None``."""
    if not isinstance(document.get("currentNodeId"), str | None):
        return "`currentNodeId` is not a string"
    steps = document.get("stepsCompleted")
    if steps is not None and not (isinstance(steps, list) and all(isinstance(step, str) for step in steps)):
        return "`stepsCompleted` is not a list of strings"
    return None


def mismatch(flaw: str) -> SchemaMismatch:
    return SchemaMismatch(f"The workflow's frontmatter does not match its schema: {flaw}. Nothing was changed.")


def refused(workflow: Workflow, why: str, origin: str | None = None) -> InvalidTransition:
    """Build the error, with the possible next steps."""
    allowed = (workflow.start,) if origin is None else workflow.next_after(origin)
    following = ", ".join(allowed[:20]) or "none, this is the last step"
    error = InvalidTransition(f"{why} Nothing was changed. Next steps: {following}.")
    error.allowed = allowed
    return error


def _node(workflow: Workflow, document: Mapping[str, Any] | None) -> str:
    """Return the document's current step. Without one, it is the first."""
    found = document.get("currentNodeId") if document is not None else None
    return found.strip() or workflow.start if isinstance(found, str) else workflow.start


def _steps(document: Mapping[str, Any] | None) -> frozenset[str]:
    found = document.get("stepsCompleted") if document is not None else None
    return frozenset(step for step in found if isinstance(step, str)) if isinstance(found, list) else frozenset()


def _require_steps(workflow: Workflow, before: frozenset[str], after: frozenset[str], origin: str) -> None:
    if missing := sorted(before - after):
        raise refused(workflow, f"Completed steps cannot be removed: {missing[0][:200]!r} is missing.", origin)
    if unknown := sorted(after - before - workflow.nodes):
        raise refused(workflow, f"The workflow has no step {unknown[0][:200]!r} to complete.", origin)
