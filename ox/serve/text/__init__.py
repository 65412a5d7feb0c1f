"""Models that read texts: a tokenizer beside an encoder or a classifier, pooling, batches by length.

Imports ox.serve, ox.graph and ox.generation only; nothing of ox.serve.transport."""
