"""Define a tool that changes files. Its changes are one change set, which undo takes back."""

from pydantic import BaseModel

from toolcrib import AbsolutePath, Effects, ToolContext, Toolcrib, ToolFailed, tool

CHANGELOG = "/CHANGELOG.md"


class RenamedHeading(BaseModel):
    path: str
    occurrences: int


@tool(toolset="docs", idempotent=True, effects=lambda a: Effects(reads=(a.path,), writes=(a.path, CHANGELOG)))
async def rename_heading(path: AbsolutePath, old: str, new: str, context: ToolContext) -> RenamedHeading:
    """Rename a Markdown heading and note it in the change log.

    Args:
        path: The Markdown file.
        old: The heading as it is.
        new: The heading as it should be.
    """
    text = await context.files.read_text(path)
    occurrences = text.count(f"# {old}\n")
    if not occurrences:
        raise ToolFailed(f"{path} has no heading {old!r}. Read the file, then repeat the call.")
    await context.files.write_text(path, text.replace(f"# {old}\n", f"# {new}\n"))
    log = await context.files.read_text(CHANGELOG) if await context.files.exists(CHANGELOG) else ""
    await context.files.write_text(CHANGELOG, f"{log}- {path}: {old} is now {new}\n")
    context.emit(f"renamed {occurrences}\n")
    return RenamedHeading(path=path.path, occurrences=occurrences)


with Toolcrib(".", tools=[rename_heading]) as crib:
    crib.call("write", path="/guide.md", content="# Start\n", overwrite=True)
    print(crib.call("rename_heading", path="/guide.md", old="Start", new="First steps"))
    print(crib.call("cat", paths=["/guide.md", CHANGELOG])["content"])
    undone = crib.undo()
    print("undone:", *(change["path"] for change in undone["changes"]))
