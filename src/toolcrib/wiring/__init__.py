"""Creates and connects all parts. The only package that knows every concrete class."""
