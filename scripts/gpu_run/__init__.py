"""The parts of scripts/gpu.py: steps of a run, the programs that they start, the report, the page."""
