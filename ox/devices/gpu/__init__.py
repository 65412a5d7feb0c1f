"""NVIDIA GPUs: arrays by CuPy (`cupy_device.py`), ox's kernels (`kernel_table.py` lists them), cuBLAS, cuDNN and CUDA
graphs. Imports ox.devices and ox.kernels only."""
