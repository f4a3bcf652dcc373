"""Define your own tool: a typed function. The model reads its docstring."""

from toolcrib import Danger, TextChunk, ToolCallFinished, ToolCallStarted, Toolcrib, tool


@tool(danger=Danger.SAFE)
def lookup_part(number: str, *, depot: str = "main") -> dict[str, str | int]:
    """Look up a spare part by its number.

    Args:
        number: The part number, such as `A-113`.
        depot: Which depot to look in.
    """
    return {"number": number, "depot": depot, "stock": 4}


with Toolcrib(".", tools=[lookup_part], instructions="You answer questions about spare parts.") as crib:
    for event in crib.stream("How many of A-113 do we have?"):
        match event:
            case TextChunk(text):
                print(text, end="", flush=True)
            case ToolCallStarted(tool=name, arguments=given):
                print(f"[{name} {dict(given)}]")
            case ToolCallFinished(ok=False, result=reason):
                print(f"[failed: {reason}]")
    print()
