"""What all dialects of text generation share: models, parameters, chat templates, and the way of tokens to clients."""
