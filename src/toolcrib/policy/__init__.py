"""Pure decisions: permissions, trust, protected names, bounds, explain. No I/O."""
