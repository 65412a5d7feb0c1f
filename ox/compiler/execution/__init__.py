"""Plans of recorded calls: their guards, and how an engine runs them, forward and backward. Imports ox.compiler and
floors below."""
