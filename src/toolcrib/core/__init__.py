"""The domain types. No I/O; pydantic is the only dependency."""
