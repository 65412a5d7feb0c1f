"""Anthropic's Messages API, translated into requests for chats.

Imports ox.serve only.
"""
