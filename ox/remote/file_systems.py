"""The file systems behind addresses, and what goes wrong with them as errors of ox."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ox.errors import LoadError, OxError
from ox.installation import install_command
from ox.remote.address import Address

PROVIDERS = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub"}
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another of the AWS SDK's ways",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    "hf": "the name of the repository; HF_TOKEN, or hf auth login; a gated model needs its owner's consent",
    "mlflow": "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
}
DENIED = (401, 403)


class FileSystem(Protocol):
    """What is used of an fsspec file system."""

    def info(self, path: str) -> dict[str, Any]:
        """Of a file or folder: its `type`, `size` and more. Raises FileNotFoundError."""

    def find(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        """The files in a folder and in those below it, by path."""

    def get_file(self, path: str, target: str) -> None:
        """Copies a file."""


def open_address(address: Address) -> tuple[FileSystem, str]:
    """A new file system for an address, without anything remembered, and the path in it.

    Raises:
        LoadError: a library is missing, or MLflow does not know the model.
    """
    if address.scheme == "mlflow":
        from ox.remote.mlflow import MlflowArtifacts, artifact_location  # urllib takes a while to import

        location = artifact_location(address.path)
        if isinstance(location, Address):
            return open_address(location)
        return MlflowArtifacts(), location
    provider = PROVIDERS[address.scheme]
    if not (log := logging.getLogger(provider)).handlers:  # else what becomes an error of ox is printed as well
        log.addHandler(logging.NullHandler())
    try:
        import fsspec

        system = fsspec.filesystem(address.scheme, skip_instance_cache=True)  # one that has listed nothing yet
    except ImportError as error:
        raise LoadError(
            f"{address.scheme}:// addresses need {provider}", where="", got=str(error),
            hint=install_command(address.scheme),
        ) from error  # fmt: skip
    return system, address.path


@contextmanager
def store_errors(address: Address) -> Iterator[None]:
    """Turns what the libraries of stores raise into a LoadError: they have no common class."""
    try:
        yield
    except OxError:
        raise
    except Exception as error:
        raise _load_error(address, error) from error


def _load_error(address: Address, error: Exception) -> LoadError:
    got = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:300]
    if _denied(error):
        return LoadError(f"{address} may not be read", where="", got=got, hint=CREDENTIALS[address.scheme])
    if isinstance(error, FileNotFoundError):
        return LoadError(f"there is nothing at {address}, or nothing that may be seen", where="", got=got,
                         hint=f"check the address and {CREDENTIALS[address.scheme]}")  # fmt: skip
    if isinstance(error, OSError) and error.filename and os.path.isabs(str(error.filename)):
        return LoadError(f"{address} cannot be kept here", where="", got=f"{error.filename}: {error.strerror}",
                         hint="OX_CACHE names another folder")  # fmt: skip
    if isinstance(error, TimeoutError):  # fsspec's has no text
        return LoadError(f"{address} cannot be read: the store does not answer, or has stopped in the middle of a file",
                         where="", got=got.removesuffix(": "), hint="check the network, and try again")  # fmt: skip
    return LoadError(f"{address} cannot be read", where="", got=got)


def _denied(error: BaseException | None) -> bool:
    """Whether a store refused, or no credentials were found, which some libraries only say in the cause."""
    while error is not None:
        response = getattr(error, "response", None)
        status = getattr(error, "code", getattr(response, "status_code", None))
        local = isinstance(error, PermissionError) and error.filename is not None
        if "Credentials" in type(error).__name__ or status in DENIED or str(status) in map(str, DENIED):
            return True
        if isinstance(error, PermissionError) and not local:
            return True
        error = error.__cause__
    return False
