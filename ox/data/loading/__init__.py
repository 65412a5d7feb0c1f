"""DataLoader: batches, made in this process or by worker processes in shared memory.

Imports ox.data, ox.tensors, ox.random, ox.core and ox.devices only; users import it from ox.data.
"""
