"""Tools: a folder per toolset, one module per tool. A module-level ``tool`` is registered automatically."""
