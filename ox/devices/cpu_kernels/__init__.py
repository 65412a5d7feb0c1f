"""Compiled kernels on the CPU: `kernel_table.py` lists the operators and sizes that they run. Imports
ox.devices and ox.kernels only."""
