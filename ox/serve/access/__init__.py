"""Who may do what: keys and their permissions, rates, TLS.

Imports ox.clock, ox.errors and ox.temporary_files only.
"""

from __future__ import annotations

from ox.serve.access.guard import Guard, credential_of

__all__ = ["Guard", "credential_of"]
