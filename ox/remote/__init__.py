"""Models in stores (``s3://``, ``gs://``, ``hf://``, ``mlflow:``): addresses, the file systems behind them, and copies
in the cache. Imports ox.cache_folder, ox.errors, ox.installation and ox.temporary_files only.
"""

from __future__ import annotations

from ox.remote.address import is_address
from ox.remote.download import local_copies, local_copy

__all__ = ["is_address", "local_copies", "local_copy"]
