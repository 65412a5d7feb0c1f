"""Puts the helpers of the generated operator tests (node_cases, samples) on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
