"""Keeps disk and history in step: reconcile, apply and crash recovery."""
