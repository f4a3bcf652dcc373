"""Tools with the wire formats of other products."""
