"""Plan files: Markdown under frontmatter that says its title, its status and when it was made. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from toolcrib.domain.errors import BadArguments, BadFrontmatter
from toolcrib.domain.places import Mount, Place
from toolcrib.workspace import frontmatter
from toolcrib.workspace.content import is_binary
from toolcrib.workspace.paths import shown

FOLDER: Final = Place(Mount.PROJECT, "/plans")
SUFFIX: Final = ".plan"


class PlanStatus(StrEnum):
    """How far a plan has come; its author says so."""

    DRAFT = "draft"
    APPROVED = "approved"
    IMPLEMENTED = "implemented"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan file in its two parts, byte for byte. An old plan may have no frontmatter, and so no metadata."""

    head: bytes
    metadata: Mapping[str, Any] | None
    body: bytes

    @property
    def created_at(self) -> datetime | None:
        """When it was made, if the frontmatter says so in a way that can be understood."""
        try:
            at = datetime.fromisoformat(str((self.metadata or {}).get("created_at")))
        except ValueError:
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    def with_body(self, body: bytes) -> bytes:
        """The whole file with another body; the frontmatter is not touched."""
        between = b"\n" if body and self.head and not self.head.endswith(b"\n") else b""
        return self.head + between + body


def place_of(name: str) -> Place:
    """Where a plan of that name stands."""
    return FOLDER.child(name.removesuffix(SUFFIX) + SUFFIX)


def name_of(place: Place) -> str:
    return place.name.removesuffix(SUFFIX)


def is_plan_name(place: Place) -> bool:
    return place.name.endswith(SUFFIX) and place.name != SUFFIX


def require_plan_name(place: Place) -> Place:
    if is_plan_name(place):
        return place
    raise BadArguments({"path": f"{shown(place)} is not a plan file. The name of a plan ends with `{SUFFIX}`."})


def parsed(content: bytes) -> Plan:
    """A plan from its bytes; BadFrontmatter says what is wrong if it cannot be read."""
    if is_binary(content):
        raise BadFrontmatter("The file is not text, so it is no plan. Choose another, or write it anew.")
    head, body = frontmatter.split(content)
    return Plan(head, frontmatter.fields_of(head) if head else None, body)


def composed(earlier: Plan | None, *, title: str, status: PlanStatus, body: bytes, now: datetime) -> Plan:
    """A new plan, or an earlier one with this title, status and body and whatever else its frontmatter says."""
    fields = {"title": title, "status": str(status), "created_at": f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    if earlier is None or earlier.metadata is None:
        head = frontmatter.made(fields)
    else:
        known = earlier.metadata.get("created_at")
        head = frontmatter.changed(earlier.head, {k: v for k, v in fields.items() if k != "created_at" or not known})
    return Plan(head, frontmatter.fields_of(head), body)
