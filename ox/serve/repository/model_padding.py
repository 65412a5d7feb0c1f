"""Whether a model's requests are padded, and which CUDA graphs are captured for it."""

from __future__ import annotations

from dataclasses import dataclass

from ox.errors import LoadError
from ox.graph.contract import Contract
from ox.serve.batching.padding import Padding
from ox.serve.config.model_config import ModelConfig
from ox.serve.runtime.device_buffers import graph_shapes
from ox.serve.runtime.padding_proof import prove_padding, unproven_reason
from ox.serve.runtime.proof import Proof
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import Source


@dataclass(frozen=True)
class ModelPadding:
    """How requests are padded, or why they are not. Without the setting, all are None.

    Args:
        padding: None if they are not padded.
        refusal: why not.
        unproven: why it has only been tried, and is not proven from the graph; None if it is.
    """

    padding: Padding | None = None
    refusal: str | None = None
    unproven: str | None = None

    @classmethod
    def of(
        cls, padding: Padding, source: Source, engine: Engine, contract: Contract, refusal: str | None
    ) -> ModelPadding:
        """What a model that has been loaded shows; `refusal` is why it cannot be in any case."""
        ruled = contract.rules.names() & set(padding.dims)
        refusal = refusal or (f"the file is for {contract.rules}" if ruled else None)
        refusal = refusal or prove_padding(engine, padding, contract.samples, contract.through)
        if refusal is not None:
            return cls(None, refusal)
        return cls(padding, None, unproven_reason(source.path, padding))

    def __str__(self) -> str:
        if self.padding is None:
            return f"padding off: {self.refusal}"
        tried = "tried on a few inputs, not proven"
        return f"{', '.join(self.padding.dims)} padded, {'proven from the graph' if self.unproven is None else tried}"


def graphs(
    name: str,
    engine: Engine,
    proof: Proof,
    options: ModelConfig,
    bound: int,
    padding: Padding | None,
    refusal: str | None,
) -> str:
    """Which CUDA graphs a model with enable_cuda_graph is to have, in words.

    Args:
        bound: the largest batch that has buffers; 0 if none has.
        padding: how runs are padded to whole lengths; None if they are not.
        refusal: why requests cannot be padded, if they cannot.

    Raises:
        LoadError: it cannot have any, or would have too many.
    """
    what, hint = f"{name} cannot be captured as CUDA graphs", "without enable_cuda_graph"
    if proof.why is not None and not bound:
        raise LoadError(what, expected="proven batches", got=proof.why, hint=hint)
    if not (engine.bindable or (padding is not None and engine.bindable_with(padding))):
        got = refusal or ", ".join(map(str, (*engine.inputs, *engine.outputs)))
        expected = "inputs and outputs of which only the first size varies, or sizes that are padded (pad)"
        raise LoadError(what, expected=expected, got=got, hint=hint)
    if not bound:
        got = "runs with fixed buffers give other results"
        raise LoadError(what, expected="the results of runs without them", got=got, hint=hint)
    endless = [dim for dim in padding.dims if padding.lengths(dim) is None] if padding is not None else []
    if endless:
        expected = f"the largest size of each dimension that is padded: max_dims = {{{endless[0]} = 512}}"
        raise LoadError(what, expected=expected, got=f"no limit of {', '.join(endless)}", hint=hint)
    count = len(graph_shapes(bound, padding))
    parts = [f"batch sizes {_listed(sorted({rows for rows, _ in graph_shapes(bound, None)}))}"]
    parts += [f"{dim} {_listed(padding.lengths(dim) or [])}" for dim in padding.dims] if padding is not None else []
    words = f"{count} CUDA graph{'s' * (count > 1)} ({'; '.join(parts)})"
    if count > options.max_graphs:
        hint = f"max_graphs = {count}, a smaller max_rows" + (" or smaller max_dims" if padding is not None else "")
        raise LoadError(what, expected=f"at most {options.max_graphs} (max_graphs)", got=words, hint=hint)
    return words


def _listed(sizes: list[int]) -> str:
    """A few sizes, or the first ones and the last."""
    shown = [str(size) for size in sizes]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:3], "...", shown[-1]])
