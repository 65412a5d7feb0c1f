"""The class `ox.Tensor`, its methods, and how tensors are created, indexed and printed.

Imports its own floor (ox.functions, ox.autograd) and those below; operators import `ox.core.tensor` instead.
"""
