"""The full-screen chat. ``transcript`` turns session events into blocks, and widgets show them."""
