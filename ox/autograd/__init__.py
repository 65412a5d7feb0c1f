"""The tape's walk, the switches, functional gradients and their check."""
