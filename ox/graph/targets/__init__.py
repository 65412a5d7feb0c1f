"""Files for a runtime that lacks something of ONNX: the same computation in what it has. None of them is needed here.

Imports ox.graph, ox.ops and ox.core only.
"""

from ox.graph.targets.target import TARGETS as TARGETS
from ox.graph.targets.target import Target as Target
from ox.graph.targets.target import find_target as find_target
from ox.graph.targets.target import for_target as for_target
