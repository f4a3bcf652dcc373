"""Toolcrib: a versioned workspace and guarded tools for language models."""

__version__ = "0.1.0"
