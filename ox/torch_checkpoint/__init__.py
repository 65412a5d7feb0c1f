"""What `torch.save` writes, read without running it: weights and plain values, and nothing else.

Such a file is a pickle with tensors beside it. A pickle is a program; `unpickler` runs the few instructions that build
containers, numbers and strings, and `allowed` holds the short list of functions that it may call, each one of ours.
"""

from ox.torch_checkpoint.read import is_torch_checkpoint, read

__all__ = ["is_torch_checkpoint", "read"]
