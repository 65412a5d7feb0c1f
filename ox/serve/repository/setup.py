"""The settings of one model: how it runs and its names, merged from the repository's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ox.errors import LoadError
from ox.graph.contract import TensorInfo
from ox.serve.batching.sequence_config import SequenceBatching
from ox.serve.config.model_config import ModelConfig
from ox.serve.repository.layout import MODEL
from ox.serve.repository.policy import Policy
from ox.serve.repository.tensor_config import NO_FORMAT, client_dims


@dataclass(frozen=True)
class TensorConfig:
    """An input or output as a configuration declares it; `dims` and `reshape` with the batch, None if not given.

    Clients see `dims`, the model `reshape`.
    """

    name: str
    dtype: str | None
    dims: tuple[int, ...] | None
    labels: str | None = None  # a file of class names
    reshape: tuple[int, ...] | None = None
    format: str = NO_FORMAT

    @property
    def inner(self) -> tuple[int, ...] | None:
        """The dimensions that the model should have."""
        return self.dims if self.reshape is None else self.reshape


@dataclass(frozen=True)
class Running:
    """What a model is loaded with: as long as this and its file stay the same, it need not be loaded again."""

    options: ModelConfig
    file: str = MODEL
    memory_mib: int | None = None
    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()
    sequence: SequenceBatching | None = None
    limited: tuple[str, ...] = ()  # dimensions that its own settings limit
    # settings that are this model's own, and not those of all models; where the values are the same, nothing changes
    own: tuple[str, ...] = field(default=(), compare=False)
    max_rows_source: str | None = None  # "max_rows is 8 (ox.toml)": which setting, and where


@dataclass(frozen=True)
class Setup:
    """All settings of a model: how it runs, which versions are served, and under which names."""

    running: Running
    policy: Policy = field(default_factory=Policy)
    aliases: tuple[str, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    unmapped: tuple[str, ...] = ()  # settings of a configuration that this server ignores

    def choose(self, versions: set[int]) -> set[int]:
        """The versions to serve: those of the policy, and those that have a label."""
        return self.policy.choose(versions) | (versions & set(self.labels.values()))


def agreed(
    model: str, kind: str, actual: tuple[TensorInfo, ...], declared: tuple[TensorConfig, ...], labels: Mapping[str, str]
) -> tuple[TensorInfo, ...]:
    """The model's inputs or outputs, held against the declared ones, as clients see them and with their class names.

    Args:
        labels: the text of each file of class names.

    Raises:
        LoadError: what was declared is not what the file has.
    """
    infos = {info.name: info for info in actual}
    for entry in declared:
        info = infos.get(entry.name)
        if info is None or entry.dtype not in (None, info.dtype) or not _fits(entry.inner, info):
            dims = "" if entry.inner is None else f" {list(entry.inner)}"
            raise LoadError(
                f"{model}: the configuration does not match the file",
                where=f"{kind} '{entry.name}'",
                expected=", ".join(map(str, actual)),
                got=f"{entry.name} {entry.dtype or ''}{dims}",
                hint="remove the setting: no configuration is needed",
            )
        infos[entry.name] = info = replace(info, dims=client_dims(entry, info))
        if entry.labels is not None:
            names = tuple(line.strip() for line in labels[entry.labels].splitlines() if line.strip())
            infos[entry.name] = replace(info, labels=names)
    return tuple(infos.values())


def _fits(dims: tuple[int, ...] | None, info: TensorInfo) -> bool:
    if dims is None:
        return True
    pairs = list(zip(dims, info.dims, strict=False))
    return len(dims) == len(info.dims) and all(said in (-1, size) or not isinstance(size, int) for said, size in pairs)
