"""Live events: whoever watches a session is told what happens in it, on whichever node it happens."""

from toolcrib.engine.live.hub import Live
from toolcrib.engine.live.subscription import Subscription

__all__ = ["Live", "Subscription"]
