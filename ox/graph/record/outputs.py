"""What a recorded function returned, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ox.core.tensor import is_tensor
from ox.errors import RecordError
from ox.graph.record.structure import leaves, parts

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


def beside(results: Mapping[str, Tensor], taken: set[str]) -> dict[str, Tensor]:
    """The results. One that is called as an input or parameter, as a state is, has ``_out`` behind its name.

    Args:
        taken: names of inputs and parameters.
    """
    return {f"{name}_out" if name in taken else name: tensor for name, tensor in results.items()}


def named_outputs(result: Any, names: Sequence[str] | None) -> dict[str, Tensor]:
    """What a function returned, by name: tensors inside of lists, tuples, dicts and dataclasses; a None is left out.

    Args:
        names: in the order of the tensors; those of a dict may be in any, if they are its keys. Default: ``output``,
            ``output_0``, ``output_1_0``, or keys and names of fields.

    Raises:
        RecordError: what is no tensor, other names than tensors, or two of one name.
    """
    if isinstance(result, (list, tuple)):
        result = [each for each in result if each is not None]
        if len(result) == 1:  # beside the loss of a model without targets
            (result,) = result
    numbered = isinstance(result, (list, tuple))
    found = list(leaves(result, "output" if numbered or parts(result) is None else ""))
    for name, tensor in found:
        if not is_tensor(tensor):
            raise RecordError(
                f"result '{name}' is no tensor",
                got=type(tensor).__name__,
                expected="tensors, or lists, tuples, dicts and dataclasses of them",
            )
    own = [name for name, _ in found]
    if not found:
        raise RecordError("the result is no tensor, and holds none", got=type(result).__name__)
    if names is not None and (numbered or set(names) != set(own)):
        if len(names) != len(found):
            raise RecordError("other names than results", expected=f"{len(found)} names", got=str(list(names)))
        own = list(names)
    if len(set(own)) < len(own):
        raise RecordError("two results have one name", got=", ".join(own), hint="output_names=[...]")
    return {name: tensor for name, (_, tensor) in zip(own, found, strict=True)}
