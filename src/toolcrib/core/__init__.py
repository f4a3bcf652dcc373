"""Pure types: what Toolcrib speaks about. No I/O, no third party but pydantic."""
