"""The WebSocket of a workspace: who may open it, how it is kept, and the two protocols that are spoken on it."""
