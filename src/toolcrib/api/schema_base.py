"""Base models and field types that several routes share."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ItemT = TypeVar("ItemT")

# Printable ASCII around one @: can be compared ignoring case, and has no look-alikes.
Email = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, to_lower=True, max_length=254, pattern=r"^[!-?A-~]+@[!-?A-~]+\.[!-?A-~]+$"
    ),
    Field(examples=["ada@example.com"]),
]
# No control characters: PostgreSQL rejects NUL, and a terminal would interpret others.
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"),
]


class InModel(BaseModel):
    """A request body. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OutModel(BaseModel):
    """A response body, created from storage objects."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


# The states of a stored call.
CallState = Literal["running", "paused", "done", "denied", "unknown"]


class ErrorInfo(OutModel):
    """A stored error."""

    code: str = Field(examples=["TOOL_FAILED"])
    message: str
    fields: dict[str, str] | None = None


class Page(OutModel, Generic[ItemT]):
    """One page of a list, and the cursor of the next one; null at the end."""

    items: list[ItemT]
    next: str | None = Field(
        default=None,
        description="The cursor of the next page. Pass it as `before`, or as `after` if the list starts with the "
        "oldest item.",
    )
