"""What to save in place of a value that no file of weights may hold: the hints of the refusals."""

from __future__ import annotations

# by the beginning of a global's name; the longest that fits counts
_INSTEAD = {
    "": "its state_dict() alone",
    "argparse.Namespace": "vars(args), a plain dict",
    "builtins.range": "list(...) of it",
    "builtins.slice": "its start, stop and step",
    "collections.defaultdict": "dict(...) of it",
    "collections.deque": "list(...) of it",
    "datetime.": "its isoformat(), a string",
    "decimal.": "str(...) or float(...) of it",
    "fractions.": "str(...) or float(...) of it",
    "numpy.random.": "its get_state() or bit_generator.state",
    "omegaconf.": "OmegaConf.to_container(config), a plain dict",
    "pathlib.": "str(path)",
    "torch._utils._rebuild_device_tensor_from_": "tensor.cpu()",
    "torch._utils._rebuild_meta_tensor": "a tensor with values; one on the meta device has none",
    "torch._utils._rebuild_nested_tensor": "tensor.unbind(), a list of ordinary ones",
    "torch._utils._rebuild_qtensor": "tensor.dequantize()",
    "torch.nn.": "model.state_dict() in place of the model",
    "torch.optim.": "optimizer.state_dict() in place of the optimizer",
    "torch.per_channel": "tensor.dequantize()",
    "torch.per_tensor": "tensor.dequantize()",
    "torch.return_types.": "tuple(...) of it",
    "types.SimpleNamespace": "vars(...) of it, a plain dict",
    "uuid.": "str(...) of it",
}
_TYPES = {
    "torch.complex": "torch.view_as_real(tensor)",
    "torch.Complex": "torch.view_as_real(tensor)",
    "torch.float8": "tensor.float()",
    "torch.q": "tensor.dequantize()",
    "torch.Q": "tensor.dequantize()",
    "torch.sparse": "tensor.to_sparse_coo(), or tensor.to_dense()",
}
# how PyTorch's pickles, of protocol 2, name what Python 3 calls otherwise
_PYTHON_2 = {"builtins.xrange": "builtins.range", "builtins.long": "builtins.int", "builtins.unicode": "builtins.str"}


def python_3(full: str) -> str:
    """The name that Python 3 has for a global of a pickle of protocol 2."""
    if full.startswith("exceptions."):
        return f"builtins.{full.partition('.')[2]}"
    return _PYTHON_2.get(full, full)


def instead_of(full: str) -> str:
    """For a global that is refused."""
    instead = _INSTEAD[max((start for start in _INSTEAD if full.startswith(start)), key=len)]
    return (
        "with PyTorch, if you trust the file: checkpoint = torch.load(path, weights_only=False); "
        f"then torch.save with {instead}"
    )


def instead_of_type(full: str) -> str | None:
    """For an element type or a layout that ox has not; None where there is none known."""
    instead = next((instead for start, instead in _TYPES.items() if full.startswith(start)), None)
    return instead and f"where it was saved: {instead}"
