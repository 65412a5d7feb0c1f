"""The native engine: a graph as a list of prepared calls. Pointwise work runs in kernels that are generated for the
graph, everything else in the kernels that eager calls run. Imports ox.engines, ox.graph and floors below.
"""

from ox.engines.native.engine import Native

__all__ = ["Native"]
