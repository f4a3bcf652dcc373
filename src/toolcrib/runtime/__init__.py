"""Timers, threads, worker processes and process setup."""
