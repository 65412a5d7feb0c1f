"""Reads files of `torch.save` without running them: weights and plain values, nothing else.

Such a file is a pickle with tensors beside it, and a pickle is a program. `unpickler` runs the few instructions that
build containers, numbers and strings; `allowed` has the short list of functions that it may call, all of them ours.
"""

from ox.serialization.torch_checkpoint.reader import is_torch_checkpoint, read

__all__ = ["is_torch_checkpoint", "read"]
