"""Tools that speak the wire formats of other products."""
