"""A recipe's page run on PyTorch: its own text with the imports changed, which is how scripts are said to move over."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import ox
import ox.data.transforms

PAGES = Path(__file__).parents[2] / "models" / "ox_models"


class TensorDataset(torch.utils.data.TensorDataset):
    """PyTorch's, from arrays as well, as ox's is; many samples at once."""

    def __init__(self, *arrays: Any) -> None:
        super().__init__(*map(torch.as_tensor, arrays))

    def batch(self, indices: np.ndarray) -> list[torch.Tensor]:
        return [x[torch.from_numpy(indices)] for x in self.tensors]


class Transforms:
    """`ox.data.transforms` for PyTorch's tensors, in place of torchvision's."""

    def __getattr__(self, name: str) -> Any:
        def make(*arguments: Any, **options: Any) -> Any:
            transform = getattr(ox.data.transforms, name)(*arguments, **options)
            batch = transform.batch

            def on_tensors(images: Any, generator: Any = None) -> Any:
                if not isinstance(images, torch.Tensor):  # within a Compose
                    return batch(images, generator)
                return torch.from_numpy(np.ascontiguousarray(batch(ox.from_numpy(images.numpy())).numpy()))

            transform.batch = on_tensors
            return transform

        return make


transforms = Transforms()


def moved(name: str) -> ModuleType:
    """The page `name` of ox_models with ``ox`` replaced by ``torch``, and so the pages that it imports.

    What stays ox's are its errors, `generate`, its datasets but for `TensorDataset`, and its transforms of images.
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
    text = re.sub(r"^from ox\.data import .*$", ours_or_moved, text, flags=re.M)
    text = re.sub(r"^import ox$", "import torch as ox", text, flags=re.M)
    ours = r"(?!(?:data|errors|generation)\b)"
    text = re.sub(rf"^from ox((?:\.{ours}\w+)*) import", r"from torch\1 import", text, flags=re.M)
    for name in re.findall(r"^from ox_models\.(\w+) import", text, flags=re.M):
        moved(name)
        text = text.replace(f"from ox_models.{name} import", f"from moved_{name} import")
    return text


def ours_or_moved(line: re.Match[str]) -> str:
    """An import from ox.data, with what is replaced taken from here."""
    names = line[0].partition(" import ")[2].split(", ")
    here = [name for name in names if name in ("TensorDataset", "transforms")]
    theirs = [name for name in names if name not in here]
    parts = [f"from {place} import {', '.join(some)}" for place, some in (("moved", here), ("ox.data", theirs)) if some]
    return "; ".join(parts)
