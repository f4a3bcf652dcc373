"""Tools: a folder per toolset, one module per tool. A module that binds ``tool`` is found by itself."""
