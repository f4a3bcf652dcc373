"""Skills: folders with a ``SKILL.md``, as the Agent Skills specification (agentskills.io) defines them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.core.errors import InvalidFrontmatter
from toolcrib.workspace.text import frontmatter

FILE_NAME: Final = "SKILL.md"
# Where skills are, by precedence: two skills of one name are one skill.
FOLDERS: Final = (".agents/skills", ".claude/skills", "skills")
MOST_SKILLS: Final = 100

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MOST_NAME, _MOST_DESCRIPTION, _MOST_COMPATIBILITY = 64, 1024, 500


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill, valid if it has no ``flaw``. ``path`` is that of its ``SKILL.md``."""

    path: str
    name: str
    description: str = ""
    flaw: str | None = None


def parse_skills(files: Sequence[tuple[str, bytes]]) -> list[tuple[str, str, str, str | None]]:
    """Parse ``SKILL.md`` files, in the order of their precedence. Returns the fields of a ``Skill`` for each.

    Plain values, because parsing untrusted YAML belongs into a worker.
    """
    found: list[tuple[str, str, str, str | None]] = []
    taken: dict[str, str] = {}
    for path, content in files:
        folder = path.split("/")[-2]
        try:
            fields = frontmatter.fields_of(head) if (head := frontmatter.split(content)[0]) else None
        except InvalidFrontmatter as error:
            found.append((path, folder, "", error.message))
            continue
        flaw = _flaw(fields, folder)
        if flaw is None and folder in taken:
            flaw = f"`{taken[folder]}` has the same name and comes first."
        if flaw is None:
            taken[folder] = path
        found.append((path, folder, " ".join(str((fields or {}).get("description", "")).split()), flaw))
    return found


def offered(skills: Iterable[Skill]) -> str:
    """Render names, descriptions and files of the valid skills for a model, one line each."""
    valid = [skill for skill in skills if skill.flaw is None]
    return "\n".join(f"- {skill.name} ({skill.path}): {skill.description}" for skill in valid)


def _flaw(fields: Mapping[str, Any] | None, folder: str) -> str | None:
    """Return the first rule of the specification that the frontmatter breaks."""
    if fields is None:
        return "It has no frontmatter. Begin the file with `---`, `name`, `description` and `---`."
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MOST_NAME:
        return f"`name` must be 1 to {_MOST_NAME} lower-case letters, digits and single hyphens in between."
    if name != folder:
        return f"`name` is `{name}` but the folder is `{folder}`. Give both the same name."
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= _MOST_DESCRIPTION:
        return f"`description` must be text of 1 to {_MOST_DESCRIPTION:,} characters."
    compatibility = fields.get("compatibility", "-")
    if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= _MOST_COMPATIBILITY:
        return f"`compatibility` must be text of 1 to {_MOST_COMPATIBILITY} characters."
    if not isinstance(fields.get("metadata", {}), Mapping):
        return "`metadata` must be a mapping."
    if fields.get("disable-model-invocation") is True:
        return "`disable-model-invocation` keeps it from models."
    return None
