"""Shapes that several routes share."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ItemT = TypeVar("ItemT")

# Printable ASCII around one @: what can be compared without regard to case, and looks like nothing else.
Email = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, to_lower=True, max_length=254, pattern=r"^[!-?A-~]+@[!-?A-~]+\.[!-?A-~]+$"
    ),
    Field(examples=["ada@example.com"]),
]
# Without control characters, which PostgreSQL refuses (NUL) or a terminal obeys.
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"),
]


class InModel(BaseModel):
    """A request's body: nothing is taken that nobody asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OutModel(BaseModel):
    """An answer, made from what storage gave."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


# How far a call is that is kept as a row.
CallState = Literal["running", "done", "refused", "waiting", "unknown"]


class ErrorInfo(OutModel):
    """An error as it is kept with what it ended."""

    code: str = Field(examples=["TOOL_FAILED"])
    message: str
    fields: dict[str, str] | None = None


class Page(OutModel, Generic[ItemT]):
    """Some items of a list, and where the next ones begin; null at the end."""

    items: list[ItemT]
    next: str | None = Field(
        default=None,
        description="Give it as `before`, or where the list begins with the oldest as `after`, to get the next page.",
    )
