"""A model's signature, which requests are checked against: inputs, outputs, sizes that must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ox.errors import ServeError
from ox.graph.contract import Array, SizeRules, TensorInfo
from ox.serve.config.dimension_limits import LONGEST, DimensionLimits, Most
from ox.serve.protocol.v2.classification import class_count
from ox.serve.protocol.v2.document import nearest, quote
from ox.serve.protocol.v2.inputs import MAX_DIM, InputCodec
from ox.serve.protocol.v2.request import RequestedOutput
from ox.serve.protocol.v2.shared_memory import REGION, SIZE, Regions


class Signature:
    """Checks requests of all formats: JSON, binary tensors, gRPC.

    Args:
        inputs, outputs: the model's interface.
        max_rows: the limit of rows per request.
        max_strings: the limit of elements of all BYTES tensors of a request.
        batched: whether first dimensions count rows.
        max_dims: limits of dimensions and their sources; dimensions without a name are "None".
        rules: the sizes that the file says it is right for; None if it says nothing of them, so that they can be 0.
    """

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        max_rows: int,
        max_strings: int,
        batched: bool = True,
        max_dims: Most = MappingProxyType({}),
        rules: SizeRules | None = None,
    ) -> None:
        self.outputs, self.max_rows, self.batched = outputs, max_rows, batched
        share = max_strings // max(1, sum(info.dtype == "BYTES" for info in inputs))
        # First dimensions can differ: the edges of a graph beside its nodes.
        most = {info.name: max_rows if info.dims[:1] == inputs[0].dims[:1] else MAX_DIM - 1 for info in inputs}
        limits = {info.name: DimensionLimits("input", info, max_dims, inputs[0].dims[:1]) for info in inputs}
        self.inputs = {
            info.name: InputCodec(info, most[info.name], share, batched, limits[info.name]) for info in inputs
        }
        self.defaulted: dict[str, InputCodec] = {}  # inputs whose default value is in the file
        self.output_index = {info.name: position for position, info in enumerate(outputs)}
        self.all_outputs = {
            binary: [RequestedOutput(position, binary) for position in range(len(outputs))] for binary in (False, True)
        }
        self.add_optional_inputs: Callable[[dict[str, Array]], None] | None = (
            None  # adds inputs that clients can leave out, such as a mask
        )
        self.allow_empty = True  # whether inputs can be empty: a Scan of length 0 crashes ONNX Runtime
        self.allow_no_rows = True  # whether a first dimension that varies can be 0
        # With at most one varying size, inputs are checked independently and batches need no grouping.
        tails = [info.dims[1:] for info in inputs]
        self._has_symbols = any(not isinstance(size, int) for tail in tails for size in tail) or len(inputs) > 1
        self._needs_grouping = any(not isinstance(size, int) for tail in tails for size in tail)
        self._rules = rules if rules or self._needs_grouping else None

    def add_defaulted(self, infos: Sequence[TensorInfo], max_strings: int) -> None:
        """Inputs that a request may leave out. One that gives them runs alone: the rest of a batch has other values."""
        self.defaulted = {info.name: InputCodec(info, MAX_DIM - 1, max_strings, batched=False) for info in infos}

    def input(self, name: Any, feed: dict[str, Array]) -> InputCodec:
        """The codec of an input that is not in `feed` yet.

        Raises:
            ServeError: unknown name, or an input that appears twice.
        """
        codec = self.inputs.get(name) or self.defaulted.get(name) if type(name) is str else None
        if codec is None:
            raise ServeError(
                f"there is no input {quote(name)}",
                expected=self.names(),
                hint=nearest(name, [*self.inputs, *self.defaulted]),
            )
        if name in feed:
            raise ServeError(f"input '{name}' appears twice")
        return codec

    def rows_and_key(self, feed: dict[str, Array]) -> tuple[int, tuple[Any, ...]]:
        """The number of rows and the grouping key of a complete feed.

        Raises:
            ServeError: an input is missing or empty, sizes of one symbol differ, or too many rows.
        """
        if self.gives_defaulted(feed):
            rows, _ = self.rows_and_key({name: array for name, array in feed.items() if name in self.inputs})
            return rows, (object(),)  # a unique key: it runs alone
        if len(feed) != len(self.inputs) and self.add_optional_inputs is not None:
            self.add_optional_inputs(feed)
        if len(feed) != len(self.inputs):
            missing = ", ".join(f"'{name}'" for name in self.inputs if name not in feed)
            raise ServeError(f"input {missing} is missing", expected=self.names())
        if not self.allow_empty:
            empty = next((name for name, array in feed.items() if 0 in array.shape), None)
            if empty is not None:
                raise ServeError(f"input '{empty}' is empty", expected="sizes of 1 or more: the model has a Scan")
        if self._has_symbols or self._rules is not None:
            sizes: dict[str, tuple[int, str]] = {}
            for name, array in feed.items():
                for dim, size in zip(self.inputs[name].info.dims, array.shape, strict=True):
                    if isinstance(dim, str) and sizes.setdefault(dim, (size, name))[0] != size:
                        other, where = sizes[dim]
                        raise ServeError(
                            f"'{dim}' is {size} in input '{name}'", expected=f"{other}, as in input '{where}'"
                        )
            self._check_rules({dim: size for dim, (size, _) in sizes.items()})
        first = next(iter(feed.values()), None)
        rows = first.shape[0] if first is not None and first.ndim else 1
        if not rows:
            if not self.allow_no_rows:
                name, first = next(iter(feed.items()))
                raise self.inputs[name].no_rows(first.shape)
            return 1, (object(),)  # counts as one row, and runs alone
        if rows > self.max_rows:
            raise ServeError(
                f"{rows} samples in one request", status=413, expected=f"at most {self.max_rows} (--limit rows)"
            )
        # In the model's order, since clients list inputs in any order.
        if not self._needs_grouping:
            return rows, ()
        key = tuple(feed[name].shape[1:] for name in self.inputs)
        for tail in key:
            for size in tail:
                if not 0 < size < LONGEST:
                    return rows, (object(),)  # a unique key: it runs alone
        return rows, key

    def gives_defaulted(self, names: Iterable[str]) -> bool:
        """Whether one of the names is an input that has a default value."""
        return bool(self.defaulted) and any(name in self.defaulted for name in names)

    def _check_rules(self, sizes: Mapping[str, int]) -> None:
        """Raises ServeError for sizes at which the file is wrong."""
        broken = None if self._rules is None else self._rules.broken(sizes)
        if broken is not None:
            got = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ServeError("the model is not for inputs of these sizes", expected=broken, got=got)

    def output(
        self,
        name: Any,
        requested: dict[int, RequestedOutput],
        parameters: Mapping[str, Any],
        binary: bool,
        regions: Regions,
    ) -> None:
        """Adds an output to `requested`; `regions` are the shared memory regions.

        Raises:
            ServeError: unknown name, requested twice, or invalid parameters.
        """
        position = self.output_index.get(name) if type(name) is str else None
        if position is None:
            names = ", ".join(f"'{info.name}'" for info in self.outputs)
            raise ServeError(f"there is no output {quote(name)}", expected=names, hint=nearest(name, self.output_index))
        if position in requested:
            raise ServeError(f"output '{name}' is requested twice")
        classes = (
            class_count(parameters["classification"], self.outputs[position]) if "classification" in parameters else 0
        )
        window = None
        if REGION in parameters or SIZE in parameters:
            if classes:
                raise ServeError(f"output '{name}' is requested as classification and in shared memory", hint="either")
            window = regions.slice(parameters, f"output '{name}'")
        requested[position] = RequestedOutput(position, binary, classes, window, self.batched)

    def names(self) -> str:
        """All inputs, for error messages."""
        optional = [f"{codec.info} (optional)" for codec in self.defaulted.values()]
        return ", ".join([*(str(codec.info) for codec in self.inputs.values()), *optional]) or "no inputs"
