"""The native engine on a GPU: generated kernels, cuBLAS and CuPy as one CUDA graph. Imports ox.engines, ox.graph and
floors below.
"""
