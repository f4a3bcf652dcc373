"""Pure decisions: permissions, trust, protected paths, limits and explanations. No I/O."""
