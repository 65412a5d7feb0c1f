"""A model's interface, as requests are held against it: its inputs, its outputs, which sizes must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ox.errors import ServeError
from ox.graph.contract import Array, TensorInfo
from ox.serve.dimension_limits import LONGEST, DimensionLimits, Most
from ox.serve.v2.classification import count_of
from ox.serve.v2.document import nearest, quote
from ox.serve.v2.inputs import LARGEST_DIM, InputCodec
from ox.serve.v2.memory import REGION, SIZE, Regions
from ox.serve.v2.request import Wanted


class Signature:
    """What every way of asking checks: JSON, binary tensors, gRPC.

    Args:
        inputs, outputs: the model's interface.
        max_rows: the most rows of one request.
        max_strings: the most elements of all of its BYTES tensors together.
        batched: whether first dimensions count rows; where they do not, one may be 0.
        max_dims: the most that dimensions may be, and what says so; those without a name are "None".
    """

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        max_rows: int,
        max_strings: int,
        batched: bool = True,
        max_dims: Most = MappingProxyType({}),
    ) -> None:
        self.outputs, self.max_rows, self.batched = outputs, max_rows, batched
        share = max_strings // max(1, sum(info.dtype == "BYTES" for info in inputs))
        # Not every first dimension counts rows: edges stand beside a graph's nodes.
        most = {info.name: max_rows if info.dims[:1] == inputs[0].dims[:1] else LARGEST_DIM - 1 for info in inputs}
        limits = {info.name: DimensionLimits("input", info, max_dims, inputs[0].dims[:1]) for info in inputs}
        self.inputs = {
            info.name: InputCodec(info, most[info.name], share, batched, limits[info.name]) for info in inputs
        }
        self.places = {info.name: place for place, info in enumerate(outputs)}
        self.all = {binary: [Wanted(place, binary) for place in range(len(outputs))] for binary in (False, True)}
        self.complete: Callable[[dict[str, Array]], None] | None = None  # adds what clients may leave out: a mask
        self.empty = True  # whether inputs may have no elements: a Scan over nothing ends ONNX Runtime's process
        # One varying size at most means that each input can be checked alone, and batches need no grouping.
        tails = [info.dims[1:] for info in inputs]
        self._named = any(not isinstance(size, int) for tail in tails for size in tail) or len(inputs) > 1
        self._grouped = any(not isinstance(size, int) for tail in tails for size in tail)

    def input(self, name: Any, feed: dict[str, Array]) -> InputCodec:
        """The input of that name, which `feed` does not hold yet.

        Raises:
            ServeError: there is none, or it appears twice.
        """
        codec = self.inputs.get(name) if type(name) is str else None
        if codec is None:
            raise ServeError(f"there is no input {quote(name)}", expected=self.names(), hint=nearest(name, self.inputs))
        if name in feed:
            raise ServeError(f"input '{name}' appears twice")
        return codec

    def measure(self, feed: dict[str, Array]) -> tuple[int, tuple[Any, ...]]:
        """Rows and grouping key of a whole feed.

        Raises:
            ServeError: an input is missing or may not be empty, sizes of one name disagree, or there are too many rows.
        """
        if len(feed) != len(self.inputs) and self.complete is not None:
            self.complete(feed)
        if len(feed) != len(self.inputs):
            missing = ", ".join(f"'{name}'" for name in self.inputs if name not in feed)
            raise ServeError(f"input {missing} is missing", expected=self.names())
        if not self.empty:
            empty = next((name for name, array in feed.items() if 0 in array.shape), None)
            if empty is not None:
                raise ServeError(f"input '{empty}' is empty", expected="sizes of 1 or more: the model has a Scan")
        if self._named:
            sizes: dict[str, tuple[int, str]] = {}
            for name, array in feed.items():
                for dim, size in zip(self.inputs[name].info.dims, array.shape, strict=True):
                    if isinstance(dim, str) and sizes.setdefault(dim, (size, name))[0] != size:
                        other, where = sizes[dim]
                        raise ServeError(
                            f"'{dim}' is {size} in input '{name}'", expected=f"{other}, as in input '{where}'"
                        )
        first = next(iter(feed.values()), None)
        # What has no rows is one run all the same.
        rows = first.shape[0] or 1 if first is not None and first.ndim else 1
        if rows > self.max_rows:
            raise ServeError(
                f"{rows} rows in one request", status=413, expected=f"at most {self.max_rows} (--limit rows)"
            )
        # In the model's order: two clients may list the same inputs differently.
        if not self._grouped:
            return rows, ()
        key = tuple(feed[name].shape[1:] for name in self.inputs)
        for tail in key:
            for size in tail:
                if not 0 < size < LONGEST:
                    return rows, (object(),)  # equal to no other key: it runs alone
        return rows, key

    def output(
        self, name: Any, wanted: dict[int, Wanted], parameters: Mapping[str, Any], binary: bool, regions: Regions
    ) -> None:
        """Adds an output to those that are wanted; `regions` is the shared memory that there is.

        Raises:
            ServeError: there is none of that name, it is asked for twice, or in a way that it cannot be given.
        """
        place = self.places.get(name) if type(name) is str else None
        if place is None:
            names = ", ".join(f"'{info.name}'" for info in self.outputs)
            raise ServeError(f"there is no output {quote(name)}", expected=names, hint=nearest(name, self.places))
        if place in wanted:
            raise ServeError(f"output '{name}' is asked for twice")
        classes = count_of(parameters["classification"], self.outputs[place]) if "classification" in parameters else 0
        window = None
        if REGION in parameters or SIZE in parameters:
            if classes:
                raise ServeError(f"output '{name}' is asked for as classification and in shared memory", hint="either")
            window = regions.window(parameters, f"output '{name}'")
        wanted[place] = Wanted(place, binary, classes, window, self.batched)

    def names(self) -> str:
        return ", ".join(str(codec.info) for codec in self.inputs.values()) or "no inputs"
