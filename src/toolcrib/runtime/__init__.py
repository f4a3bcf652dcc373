"""Timers, threads and process setup."""
