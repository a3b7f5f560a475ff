"""The version of dropflow, in a module without imports of ours."""

__version__ = "0.2.0"
