"""The API server: routes, authentication, WebSocket, MCP and OpenAI endpoints, and error responses."""
