"""`torch.backends.cudnn`."""

from ox.devices.cuda import available as is_available

__all__ = ["is_available", "version"]

enabled = True
benchmark = False
deterministic = True
allow_tf32 = False


def version() -> None:
    """None: cuDNN is CuPy's and ONNX Runtime's own matter."""
