"""Tools that search the web."""
