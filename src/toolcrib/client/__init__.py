"""A typed client of the HTTP API, for the command line, for tests, and for programs of one's own."""

from toolcrib.client.client import Client, NoAnswer
from toolcrib.client.shapes import Approval, KeptCall, Question, Rule, Workspace

__all__ = ["Approval", "Client", "KeptCall", "NoAnswer", "Question", "Rule", "Workspace"]
