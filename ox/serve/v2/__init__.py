"""The Open Inference Protocol V2, whichever way it comes: what a request asks, and what is wrong with it."""
