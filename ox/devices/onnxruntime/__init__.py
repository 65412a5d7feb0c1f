"""Large calls on the CPU as sessions of ONNX Runtime: `dispatch_table.py` lists the operators and sizes. Imports
ox.devices only."""
