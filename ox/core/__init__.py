"""What operators are made of: calls, schemas, gradient rules, modes, views, symbolic sizes, constants.

Imports ox.devices and ox.kernels only; all packages above are built on it.
"""
