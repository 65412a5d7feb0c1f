"""What a model that generates texts claims of the memory that a server's models may take on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ox.errors import LoadError
from ox.serve.gpu_budget import GpuBudget

SESSION = "gpu_mem_limit of its session"
CHECK = "two long texts, with which its scores are checked"
CACHE = "its cache, saved prefixes, staged tokens and scores"

GRAPHS = "CUDA graphs of its steps"


class GpuClaims:
    """The claims of a decoder, and of the one that drafts for it.

    Args:
        budget: of all models; with a limit.
        model: name and version, for errors.
        session_limit: `gpu_mem_limit` of each session.
    """

    def __init__(self, budget: GpuBudget, model: str, session_limit: int | None) -> None:
        self._budget, self._model, self.session_limit = budget, model, session_limit
        self._releases: list[Callable[[], None]] = []

    def free(self, number: int) -> int:
        """Bytes of a GPU that no model has claimed."""
        return self._budget.free(number)

    @contextmanager
    def loading(self, path: Path, number: int, check_bytes: int) -> Iterator[None]:
        """A block that makes a session on a GPU and checks it; if it fails, nothing stays claimed.

        Args:
            check_bytes: of the caches that the check makes.

        Raises:
            LoadError: there is no room for it, or a session without limit.
        """
        if self.session_limit is None:
            raise LoadError(
                f"{path} may take any amount of a GPU's memory, and this server's models may not",
                expected="gpu_mem_limit, for --limit gpu_memory", got="no gpu_mem_limit",
                hint='cuda = {gpu_mem_limit = "4GiB"}; or --cuda gpu_mem_limit=4GiB for all models',
            )  # fmt: skip
        release = self._claim(number, self.session_limit, SESSION, "a lower gpu_mem_limit")
        try:
            check = self._claim(number, check_bytes, CHECK, "a lower gpu_mem_limit")
            try:
                yield
            finally:
                check()
        except BaseException:
            release()
            raise
        self._releases.append(release)

    def cache(self, number: int, bytes_: int) -> None:
        """Claims what lies in CuPy's pool.

        Raises:
            LoadError: there is no room for it.
        """
        hint = "generation = { cache_mib = ... } in ox.toml"
        self._releases.append(self._claim(number, bytes_, CACHE, hint))

    def graphs(self, number: int, bytes_: int) -> None:
        """Claims what CUDA graphs have taken.

        Raises:
            LoadError: there is no room for it.
        """
        if bytes_:
            hint = "generation = { max_texts = ... } with fewer, or no enable_cuda_graph"
            self._releases.append(self._claim(number, bytes_, GRAPHS, hint))

    def _claim(self, number: int, bytes_: int, what: str, hint: str) -> Callable[[], None]:
        return self._budget.claim(self._model, {number: bytes_}, what, hint)

    def release(self) -> None:
        """Gives all of it back."""
        while self._releases:
            self._releases.pop()()
