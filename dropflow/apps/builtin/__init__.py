"""The built-in applications, one module for each or for a few related ones."""
