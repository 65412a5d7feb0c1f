"""What `ox.export.save` is told besides the model, checked before anything is recorded or written."""

from __future__ import annotations

from typing import Any

from ox.errors import ArgumentError


def check_options(*, optimize: Any, seed: Any, metadata: Any, external_above: Any) -> None:
    """Raise ArgumentError for a value of the wrong kind."""
    if optimize not in (None, "inference"):
        raise ArgumentError(
            f"there is no optimization '{optimize}'", expected="'inference' or None", got=repr(optimize)
        )
    if not (seed is None or isinstance(seed, bool) or (isinstance(seed, str) and seed)):
        raise ArgumentError("seed is the name of an input", expected='seed="seed", or seed=True', got=repr(seed))
    for key, text in dict(metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ArgumentError(
                "metadata are texts by name", got=f"{key!r}: {text!r}", hint="str(...) or json.dumps(...)"
            )
    if isinstance(external_above, bool) or not isinstance(external_above, (int, float)):
        raise ArgumentError("external_above is a number of bytes", got=repr(external_above))
