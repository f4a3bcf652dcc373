"""Outgoing HTTP requests: one client for all of them, and the addresses that it may connect to."""
