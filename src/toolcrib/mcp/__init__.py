"""The MCP client: other servers' tools become toolsets behind the gate. The MCP server is in ``api/mcp``."""
