"""From requests to batches and back."""
