"""A run as one HTML page that needs nothing else: `ox runs report`."""

from ox.train.report.write import write

__all__ = ["write"]
