"""Plan files: Markdown with frontmatter for title, status and creation time."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import BadArguments, InvalidFrontmatter
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.text import frontmatter
from toolcrib.workspace.text.content import is_binary

FOLDER: Final = WorkspacePath(Mount.PROJECT, "/plans")
SUFFIX: Final = ".plan"


class PlanStatus(StrEnum):
    """The progress of a plan, set by its author."""

    DRAFT = "draft"
    APPROVED = "approved"
    IMPLEMENTED = "implemented"
    ARCHIVED = "archived"


class PlanDocument(NamedTuple):
    """A plan file in two parts, byte for byte. An old plan may have no frontmatter, and then no metadata."""

    head: bytes
    metadata: Mapping[str, Any] | None
    body: bytes

    @property
    def created_at(self) -> datetime | None:
        """The creation time, if the frontmatter has a valid one."""
        try:
            at = datetime.fromisoformat(str((self.metadata or {}).get("created_at")))
        except ValueError:
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    def with_body(self, body: bytes) -> bytes:
        """Return the whole file with another body. The frontmatter stays unchanged."""
        between = b"\n" if body and self.head and not self.head.endswith(b"\n") else b""
        return self.head + between + body


def path_of(name: str) -> WorkspacePath:
    """Return the path of a plan by name."""
    return FOLDER.child(name.removesuffix(SUFFIX) + SUFFIX)


def name_of(path: WorkspacePath) -> str:
    """Return a plan's name, without the suffix."""
    return path.name.removesuffix(SUFFIX)


def is_plan_name(path: WorkspacePath) -> bool:
    return path.name.endswith(SUFFIX) and path.name != SUFFIX


def require_plan_name(path: WorkspacePath) -> WorkspacePath:
    """Return the path if it has a plan's name. Raises ``BadArguments`` otherwise."""
    if is_plan_name(path):
        return path
    raise BadArguments({"path": f"{path.display} is not a plan file. The name of a plan ends with `{SUFFIX}`."})


def parsed(content: bytes) -> PlanDocument:
    """Parse a plan. Raises ``InvalidFrontmatter`` with what is wrong if it cannot be read."""
    if is_binary(content):
        raise InvalidFrontmatter("The file is not text, so it is not a plan. Choose another file, or rewrite it.")
    head, body = frontmatter.split(content)
    return PlanDocument(head, frontmatter.fields_of(head) if head else None, body)


def composed(
    earlier: PlanDocument | None, *, title: str, status: PlanStatus, body: bytes, now: datetime
) -> PlanDocument:
    """Create a plan, or update an earlier one. Other fields of its frontmatter stay."""
    fields = {"title": title, "status": str(status), "created_at": f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    if earlier is None or earlier.metadata is None:
        head = frontmatter.made(fields)
    else:
        known = earlier.metadata.get("created_at")
        head = frontmatter.changed(earlier.head, {k: v for k, v in fields.items() if k != "created_at" or not known})
    return PlanDocument(head, frontmatter.fields_of(head), body)


# Words for generated plan names, such as ``gleeful-tangerine-expedition``.
MOODS: Final = (
    "able", "agile", "amber", "ample", "autumn", "bold", "brave", "breezy", "bright", "brisk", "calm", "candid",
    "careful", "cheerful", "clever", "crisp", "curious", "daring", "eager", "early", "earnest", "fearless", "festive",
    "gallant", "gentle", "gleeful", "golden", "graceful", "hardy", "honest", "humble", "jolly", "jubilant", "keen",
    "kind", "lively", "loyal", "lucid", "lucky", "mellow", "merry", "mighty", "modest", "nimble", "noble", "patient",
    "playful", "polite", "proud", "quiet", "quick", "radiant", "ready", "serene", "silver", "sincere", "steady",
    "sturdy", "sunny", "swift", "tidy", "vivid", "warm", "wise",
)  # fmt: skip

THINGS: Final = (
    "acorn", "apricot", "aspen", "badger", "bamboo", "beacon", "birch", "brook", "canyon", "cedar", "cherry",
    "clover", "comet", "copper", "coral", "cypress", "dawn", "delta", "dune", "ember", "falcon", "fern", "fjord",
    "garden", "ginger", "glacier", "granite", "harbor", "hazel", "heron", "island", "ivory", "jasmine", "juniper",
    "lagoon", "lantern", "lark", "laurel", "lemon", "lotus", "maple", "marble", "meadow", "moss", "nectar", "oak",
    "ocean", "olive", "orchard", "otter", "pebble", "pine", "prairie", "quartz", "reef", "river", "saffron", "sparrow",
    "spruce", "tangerine", "thistle", "tundra", "valley", "willow",
)  # fmt: skip

UNDERTAKINGS: Final = (
    "adventure", "ascent", "assembly", "attempt", "ballad", "blueprint", "bridge", "campaign", "carnival", "chapter",
    "chorus", "compass", "concert", "courier", "craft", "crossing", "dance", "departure", "discovery", "endeavor",
    "errand", "excursion", "expedition", "festival", "flight", "foundry", "harvest", "horizon", "idea", "invention",
    "journey", "launch", "lesson", "march", "melody", "mosaic", "odyssey", "outline", "overture", "parade", "passage",
    "pilgrimage", "project", "promise", "pursuit", "quest", "recital", "regatta", "revelation", "rhapsody", "scheme",
    "sketch", "sonata", "story", "survey", "symphony", "tapestry", "theorem", "transformation", "travel", "venture",
    "voyage", "waltz", "workshop",
)  # fmt: skip


def drawn() -> str:
    """Return one of a quarter of a million names. It may be in use already."""
    return "-".join(secrets.choice(words) for words in (MOODS, THINGS, UNDERTAKINGS))
