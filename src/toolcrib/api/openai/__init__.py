"""The OpenAI-compatible API at ``/v1``: an agent is a model, and a run is one answer."""
