"""HTTP routes, one module per resource. Each has a ``router`` that the application includes."""
