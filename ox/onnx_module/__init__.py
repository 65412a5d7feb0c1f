"""A loaded ONNX file as a Module: `ox.export.load`, and its preparation for fine-tuning.

Imports ox.graph, ox.nn and floors below. Imported by ox.export and ox.train only.
"""
