"""The OpenAI-compatible face at ``/v1``: agents are models, and a whole run is one answer."""
