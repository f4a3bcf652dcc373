"""Every route that lists something answers alike: `items` and `next`, and a `limit` with bounds."""

from typing import Any

from fastapi import FastAPI

# The most that any list returns at once.
MOST = 1_000
# Clients of earlier systems read these tools as a bare list; the list is whole.
BARE = {"list_tools"}
# Results of tools, in the envelope of tool calls.
TOOL_RESULTS = {"list_deleted_files", "list_versions"}
# Changes with their lines by pages, of which one can begin within a change.
PAGES_OF_LINES = {"list_proposed_changes"}


def test_every_list_has_the_same_shape(app: FastAPI) -> None:
    document = app.openapi()
    lists = {
        operation["operationId"]: (operation, schema)
        for operations in document["paths"].values()
        if (operation := operations.get("get")) and (schema := _answer(document, operation)) is not None
        if operation["operationId"].startswith("list_") or _is_list(schema)
    }

    others = {
        name for name, (_, schema) in lists.items() if set(schema.get("properties", {})) != {"items", "next"}
    } - BARE
    unbounded = {name for name, (operation, _) in lists.items() if not _is_bounded(operation)}

    assert len(lists) > 20
    assert others == TOOL_RESULTS | PAGES_OF_LINES
    assert unbounded == set()


def _answer(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    schema: dict[str, Any] | None = (
        operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema")
    )
    if schema is None or "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def _is_list(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "array" or "items" in schema.get("properties", {})


def _is_bounded(operation: dict[str, Any]) -> bool:
    """Whether it has no cursor and is whole, or one cursor and a limit with a default and bounds."""
    query = {one["name"]: one["schema"] for one in operation.get("parameters", []) if one["in"] == "query"}
    cursors = {"before", "after"} & set(query)
    if "limit" not in query:
        return not cursors
    limit = query["limit"]
    return len(cursors) <= 1 and limit["minimum"] == 1 and limit["maximum"] <= MOST and 1 <= limit["default"] <= MOST
