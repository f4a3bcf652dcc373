"""Routes, one module for each thing of the API. Each has a ``router``, which the application includes."""
