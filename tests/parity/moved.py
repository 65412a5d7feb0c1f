"""A recipe's page run on PyTorch: its own text with the imports changed, which is how scripts are said to move over."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

PAGES = Path(__file__).parents[2] / "models" / "ox_models"


class TensorDataset(torch.utils.data.TensorDataset):
    """PyTorch's, from arrays as well, as ox's is; many samples at once."""

    def __init__(self, *arrays: Any) -> None:
        super().__init__(*map(torch.as_tensor, arrays))

    def batch(self, indices: np.ndarray) -> list[torch.Tensor]:
        return [x[torch.from_numpy(indices)] for x in self.tensors]


def moved(name: str) -> ModuleType:
    """The page `name` of ox_models with ``ox`` replaced by ``torch``, and so the pages that it imports.

    What stays ox's are its errors and the datasets of `ox.data`, but for `TensorDataset`.
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
    text = re.sub(r"^from ox\.data import TensorDataset$", "from moved import TensorDataset", text, flags=re.M)
    text = re.sub(r"^import ox$", "import torch as ox", text, flags=re.M)
    text = re.sub(r"^from ox((?:\.(?!(?:data|errors)\b)\w+)*) import", r"from torch\1 import", text, flags=re.M)
    for name in re.findall(r"^from ox_models\.(\w+) import", text, flags=re.M):
        moved(name)
        text = text.replace(f"from ox_models.{name} import", f"from moved_{name} import")
    return text
