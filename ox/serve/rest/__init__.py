"""The Open Inference Protocol V2 over HTTP: paths, JSON, binary tensors."""
