"""The version of dropflow, in a module without imports of ours."""

__all__ = ["__version__"]

__version__ = "0.2.0"
