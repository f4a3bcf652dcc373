"""Disk against history: reconcile, apply and crash recovery."""
