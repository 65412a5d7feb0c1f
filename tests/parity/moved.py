"""A recipe's page run on PyTorch: its own text with the imports changed, which is how scripts are said to move over."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

PAGES = Path(__file__).parents[2] / "models" / "ox_models"


def moved(name: str) -> ModuleType:
    """The page `name` of ox_models with ``ox`` replaced by ``torch``, and so the pages that it imports.

    What stays ox's is the data: `ox.data`, and the modules whose names end in ``_data``.
    """
    module = sys.modules.get(f"moved_{name}")
    if module is None:
        path = PAGES / f"{name}.py"
        module = sys.modules[f"moved_{name}"] = ModuleType(f"moved_{name}")
        module.__file__ = str(path)
        exec(compile(changed(path.read_text(encoding="utf-8")), str(path), "exec"), vars(module))
    return module


def changed(text: str) -> str:
    """The text with the imports changed, and nothing else."""
    text = re.sub(r"^import ox$", "import torch as ox", text, flags=re.M)
    text = re.sub(r"^from ox((?:\.(?!data\b)\w+)*) import", r"from torch\1 import", text, flags=re.M)
    for name in re.findall(r"^from ox_models\.(\w+) import", text, flags=re.M):
        if not name.endswith("_data"):
            moved(name)
            text = text.replace(f"from ox_models.{name} import", f"from moved_{name} import")
    return text
