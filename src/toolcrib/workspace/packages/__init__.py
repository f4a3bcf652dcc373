"""Agent packages: archives, folders and installation."""
