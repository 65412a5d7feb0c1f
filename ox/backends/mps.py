"""`torch.backends.mps`."""


def is_available() -> bool:
    """False: ox runs on cpu and cuda."""
    return False


is_built = is_available
