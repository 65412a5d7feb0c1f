"""Ollama's API: chats, texts, embeddings and what is known of the models; translated into the other dialects.

Imports ox.serve and ox.graph.contract only.
"""
