"""The settings files of a repository, read when they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ox.errors import LoadError
from ox.serve.config.model_config import ModelConfig
from ox.serve.repository.layout import ModelFiles, Stamp
from ox.serve.repository.pbtxt import from_text
from ox.serve.repository.setup import Running, Setup
from ox.serve.repository.toml import Tables, apply_table, tables
from ox.serve.repository.triton import merged


class Setups:
    """Merges options, config.pbtxt and ox.toml; later ones win.

    Args:
        options: the default settings.
        workers: processes that answer; states of sequences live in one.
    """

    def __init__(self, options: ModelConfig, workers: int = 1) -> None:
        source = None if options.max_rows is None else f"max_rows is {options.max_rows} (--max-rows)"
        self._base, self._workers = Setup(Running(options, max_rows_source=source)), workers
        self._stamps: Mapping[Path, Stamp] = {}
        self._files: dict[Path, Tables] = {}

    def read(self, settings: Mapping[Path, Stamp]) -> None:
        """Takes the settings files as they are now.

        Raises:
            LoadError: one cannot be read; the earlier settings stay.
        """
        if settings != self._stamps:
            read = {path: tables(path) for path in settings}
            self._files, self._stamps = read, settings

    def table(self, name: str) -> Mapping[str, Any]:
        """The settings files of a model."""
        return next((read[name] for read in self._files.values() if name in read), {})

    def of(self, found: ModelFiles, config: Any = None) -> Setup:
        """All settings of a model; `config` is a ModelConfig that replaces its config.pbtxt.

        Raises:
            LoadError: a setting is not supported.
        """
        setup = self._read_setup(found, config)
        if setup.running.sequence is not None and self._workers > 1:
            raise LoadError(
                f"{found.name}: models with sequences cannot be served by several workers",
                expected="--workers 1 for a model with sequence_batching",
                got=f"--workers {self._workers}",
                hint="a separate server for this model",
            )
        return setup

    def _read_setup(self, found: ModelFiles, config: Any) -> Setup:
        setup, where = self._base, "the parameter 'config'"
        unknown: list[str] = []
        if config is None and found.config is not None:
            where = str(found.config.path)
            config, unknown = from_text(found.config.path)
            if found.renamed:
                config.ClearField("name")
        if config is not None:
            setup = merged(setup, config, found.name, where, unknown)
        source = setup.running.max_rows_source
        for path, read in self._files.items():
            if found.name in read:
                setup = apply_table(setup, read[found.name], path, found.name)
                break
        if config is not None and config.HasField("max_batch_size") and not config.max_batch_size:
            # The file defines the first dimension: no setting makes it the batch.
            options = replace(setup.running.options, max_rows=0)
            setup = replace(setup, running=replace(setup.running, options=options, max_rows_source=source))
        return setup
