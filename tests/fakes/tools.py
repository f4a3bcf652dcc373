"""Tool definitions as models get them."""

from toolcrib.tools.tool import ToolDefinition

_PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FS_READ = ToolDefinition(name="fs.read", description="Read a file.", input_schema=_PATH)
LIST_DIRECTORY = ToolDefinition(name="list_directory", description="List a directory.", input_schema=_PATH)
TOOLS = (FS_READ, LIST_DIRECTORY)
