"""OpenAI's HTTP API: completions, chats, models and embeddings; reranking and tokens in the forms of others.

Imports ox.serve and ox.graph.contract only.
"""
