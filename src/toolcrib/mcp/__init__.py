"""The MCP client: servers of others become toolsets behind our gate. The MCP server is in ``api/mcp``."""
