"""Tools: a folder per family, a tool or a few kindred ones per module. Every ``Tool`` in a module is registered."""
