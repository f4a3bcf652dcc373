"""Executes tool calls that the policy allows, asks people about the others, and keeps the audit log."""
