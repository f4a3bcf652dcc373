"""The WebSocket of a workspace: admission, the connection, and the two protocols spoken on it."""
