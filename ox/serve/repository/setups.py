"""What a repository says about its models, read when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ox.errors import LoadError
from ox.serve.options import Options
from ox.serve.repository.layout import Found, Stamp
from ox.serve.repository.pbtxt import from_text
from ox.serve.repository.setup import Running, Setup
from ox.serve.repository.toml import Tables, tables, told
from ox.serve.repository.triton import merged


class Setups:
    """Puts options, config.pbtxt and ox.toml together; what is said later wins.

    Args:
        options: of models about which nothing is said.
        workers: processes that answer; states of sequences live in one.
    """

    def __init__(self, options: Options, workers: int = 1) -> None:
        said = None if options.max_rows is None else f"max_rows is {options.max_rows} (--max-rows)"
        self._base, self._workers = Setup(Running(options, max_rows_said=said)), workers
        self._stamps: Mapping[Path, Stamp] = {}
        self._files: dict[Path, Tables] = {}

    def read(self, settings: Mapping[Path, Stamp]) -> None:
        """Takes the settings files as they are now.

        Raises:
            LoadError: one cannot be read; what the files said before stays.
        """
        if settings != self._stamps:
            read = {path: tables(path) for path in settings}
            self._files, self._stamps = read, settings

    def table(self, name: str) -> Mapping[str, Any]:
        """What the settings files say about a model."""
        return next((read[name] for read in self._files.values() if name in read), {})

    def of(self, found: Found, config: Any = None) -> Setup:
        """All that is said about a model; `config` is a ModelConfig in place of its config.pbtxt.

        Raises:
            LoadError: something that is said cannot be followed.
        """
        setup = self._said(found, config)
        if setup.running.sequence is not None and self._workers > 1:
            raise LoadError(
                f"{found.name}: the states of sequences live in one process, and several answer here",
                expected="--workers 1 for a model with sequence_batching",
                got=f"--workers {self._workers}",
                hint="a server of its own for this model",
            )
        return setup

    def _said(self, found: Found, config: Any) -> Setup:
        setup, where = self._base, "the parameter 'config'"
        unknown: list[str] = []
        if config is None and found.config is not None:
            where = str(found.config.path)
            config, unknown = from_text(found.config.path)
        if config is not None:
            setup = merged(setup, config, found.name, where, unknown)
        said = setup.running.max_rows_said
        for path, read in self._files.items():
            if found.name in read:
                setup = told(setup, read[found.name], path, found.name)
                break
        if config is not None and config.HasField("max_batch_size") and not config.max_batch_size:
            # It says what the tensors' first dimension is: no setting makes it the batch.
            options = replace(setup.running.options, max_rows=0)
            setup = replace(setup, running=replace(setup.running, options=options, max_rows_said=said))
        return setup
