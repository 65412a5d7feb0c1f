"""The HTTP API of Hugging Face's Text Embeddings Inference: vectors of texts, reranking, facts about the model.

Imports ox.serve and ox.graph.contract only.
"""
