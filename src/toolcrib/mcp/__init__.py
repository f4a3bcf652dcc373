"""The MCP client: servers of others become toolsets behind our gate. The MCP server's face is in ``server/mcp``."""
