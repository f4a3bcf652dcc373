"""The MCP server: offers a workspace's tools to any MCP client, through the same gate as the other APIs."""
