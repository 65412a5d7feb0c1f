"""OpenAI's Responses API, translated into requests for chats; and the store of earlier responses.

Imports ox.serve only.
"""
