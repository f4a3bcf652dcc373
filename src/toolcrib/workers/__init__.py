"""Worker processes for work on untrusted input: limited in time and memory, and killed at the limit."""
