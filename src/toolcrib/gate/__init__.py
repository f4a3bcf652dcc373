"""Carries out what policy allows: the gate, the book, and what recovers after a crash."""
