"""What all dialects of text generation share: models, parameters, chat templates, and the way of tokens to clients.

Imports ox.serve and ox.generation only; nothing of ox.serve.protocol.openai or ox.serve.protocol.rest.
"""
