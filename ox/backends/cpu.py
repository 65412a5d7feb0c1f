"""`torch.backends.cpu`."""


def get_cpu_capability() -> str:
    """``DEFAULT``: kernels choose what the processor has by themselves. `torch.backends.cpu.get_cpu_capability`."""
    return "DEFAULT"
