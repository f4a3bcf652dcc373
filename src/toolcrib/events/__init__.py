"""Live events: delivers what happens in a session to its subscribers on every node."""

from toolcrib.events.event_hub import EventHub, Subscription

__all__ = ["EventHub", "Subscription"]
