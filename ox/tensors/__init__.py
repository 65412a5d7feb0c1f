"""The class `ox.Tensor`, its methods, and how tensors are created, indexed and printed.

Imports floors below; operators import `ox.core.tensor` instead.
"""
