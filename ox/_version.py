"""The version of ox."""

__version__ = "0.1.0"
