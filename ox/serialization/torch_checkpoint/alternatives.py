"""What to save in place of a value that no file of weights may hold: the hints of the refusals."""

from __future__ import annotations

# by the beginning of a global's name; the longest that fits counts
_INSTEAD = {
    "": "its state_dict() alone",
    "datetime.": "its isoformat(), a string",
    "decimal.": "str(...) or float(...) of it",
    "fractions.": "str(...) or float(...) of it",
    "numpy.random.": "its get_state() or bit_generator.state",
    "omegaconf.": "OmegaConf.to_container(config), a plain dict",
    "torch._utils._rebuild_device_tensor_from_": "tensor.cpu()",
    "torch._utils._rebuild_meta_tensor": "a tensor with values; one on the meta device has none",
    "torch._utils._rebuild_nested_tensor": "tensor.unbind(), a list of ordinary ones",
    "torch._utils._rebuild_qtensor": "tensor.dequantize()",
    "torch.nn.": "model.state_dict() in place of the model",
    "torch.optim.": "optimizer.state_dict() in place of the optimizer",
    "torch.per_channel": "tensor.dequantize()",
    "torch.per_tensor": "tensor.dequantize()",
    "torch.return_types.": "tuple(...) of it",
    "uuid.": "str(...) of it",
}
_TYPES = {
    "torch.complex": "torch.view_as_real(tensor)",
    "torch.Complex": "torch.view_as_real(tensor)",
    "torch.float4": "the values in another type",
    "torch.float8": "tensor.float()",
    "torch.q": "tensor.dequantize()",
    "torch.Q": "tensor.dequantize()",
    "torch.sparse": "tensor.to_sparse_coo(), or tensor.to_dense()",
}


def python_3(full: str) -> str:
    """The name that Python 3 has for a global of a pickle of protocol 2."""
    if full.startswith("exceptions."):
        return f"builtins.{full.partition('.')[2]}"
    return full


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
