"""Finds the plan that a question is about, so that it is read before it is accepted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.library.place import Place

_NAMED = re.compile(r"[\w./@-]+\.plan\b")
_FRONTMATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Plan:
    path: str
    text: str

    @property
    def body(self) -> str:
        """The text below the frontmatter, if it has one."""
        return _FRONTMATTER.sub("", self.text, count=1)


def is_review(item: Mapping[str, Any]) -> bool:
    """Whether it is asked if a plan is accepted."""
    return any(button.get("value") == "Accept" for button in item.get("buttons") or ())


def plan_asked_about(place: Place, item: Mapping[str, Any], *, last: str | None) -> Plan | None:
    """The plan that the question names, or else the last one; None if it is about none. Raises what reading it does."""
    if not is_review(item):
        return None
    named = _NAMED.search(str(item["question"]))
    path = named[0] if named else last
    if path is None:
        return None
    found = place.client.call(place.id, "read", {"path": f"/{path.lstrip('/')}"})
    return Plan(path, str(found.get("content", "")))
