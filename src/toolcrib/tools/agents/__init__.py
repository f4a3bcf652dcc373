"""Tools that give tasks to other agents."""
