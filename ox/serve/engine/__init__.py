"""ONNX Runtime behind the server: sessions, and the proof that requests may share a batch."""
