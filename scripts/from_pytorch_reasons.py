"""What of PyTorch ox spells differently, and what it leaves out on purpose: patterns over full names, first match counts."""

from __future__ import annotations

SPELLED: dict[str, str] = {}

REASONS: dict[str, str] = {}
