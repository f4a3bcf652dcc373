"""Live events: whoever watches a session is told what happens in it, on whichever node it happens."""

from toolcrib.events.event_hub import EventHub
from toolcrib.events.subscriptions import Subscription

__all__ = ["EventHub", "Subscription"]
