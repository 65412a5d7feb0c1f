"""`ox runs report`: a run as one self-contained HTML file."""

from ox.train.report.writer import write

__all__ = ["write"]
