"""Base models and field types that several wire types share."""

from collections.abc import Iterable
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

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

# Bytes in the database, hexadecimal text on the wire.
Hex = Annotated[str, BeforeValidator(lambda value: value.hex() if isinstance(value, bytes) else value)]


class InModel(BaseModel):
    """A request body. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OutModel(BaseModel):
    """A response body, created from storage objects. A client ignores the fields that a newer server adds.

    A ``validation_alias`` is the name of the field in the storage object.
    """

    # Each schema is built at its first use: a command uses few of them.
    model_config = ConfigDict(from_attributes=True, frozen=True, defer_build=True, validate_by_name=True)


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

    @classmethod
    def of(cls, found: Iterable[Any], *, limit: int | None = None) -> Self:
        """Return a page of stored objects. If it is full, its last id is the cursor; without a limit it is whole."""
        items = list(found)
        return cls.model_validate({"items": items, "next": str(items[-1].id) if len(items) == limit else None})
