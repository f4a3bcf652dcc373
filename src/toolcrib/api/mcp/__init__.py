"""The MCP face: a workspace's tools for any MCP client, through the same gate as every other face."""
