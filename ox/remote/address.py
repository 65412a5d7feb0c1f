"""Addresses of models in a store."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ox.errors import ArgumentError

ADDRESS = re.compile(r"mlflow:|[a-z][a-z0-9+.-]*://", re.I)
EXAMPLES = {
    "s3": "s3://bucket/path/model.onnx",
    "gs": "gs://bucket/path/model.onnx",
    "hf": "hf://owner/model/model.onnx",
    "mlflow": "mlflow:models:/name/1",
}


@dataclass(frozen=True)
class Address:
    """An address that can be read: `scheme` is a key of `EXAMPLES`, `path` what follows it."""

    scheme: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.path}" if self.scheme == "mlflow" else f"{self.scheme}://{self.path}"


def is_address(text: object) -> bool:
    """Whether this is an address rather than a path."""
    return isinstance(text, str) and ADDRESS.match(text) is not None


def parse(text: str) -> Address:
    """The parts of an address.

    Raises:
        ArgumentError: it is of another kind, or names nothing.
    """
    scheme, _, path = text.partition(":")
    scheme = scheme.lower()
    if scheme not in EXAMPLES:
        raise ArgumentError(
            f"models cannot be read from {scheme}: addresses", expected=", ".join(EXAMPLES.values()), got=text[:200],
            hint="download the file, and give its path",
        )  # fmt: skip
    path = path.rstrip("/") if scheme == "mlflow" else path.removeprefix("//").rstrip("/")
    parts = path.split("/")
    # `::` would chain file systems of fsspec, `@` before the bucket is for secrets, which do not belong in addresses
    if not path or not path.isprintable() or "::" in path or ".." in parts or "\\" in path or not parts[0]:
        raise ArgumentError("this is not the address of a model", expected=EXAMPLES[scheme], got=ascii(text[:200]))
    return Address(scheme, path)
