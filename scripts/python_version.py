"""Stops `make` with a clear sentence on a Python that is too old. Must itself run on any Python."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("ox needs Python 3.11 or newer, and this is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2])  # noqa: UP031
