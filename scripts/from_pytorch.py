"""Generate docs/from-pytorch.md, the table of PyTorch names and their counterparts, and the data of `ox port`.

    python scripts/from_pytorch.py                       write docs/from-pytorch.md and ox/porting/left_out.json
    python scripts/from_pytorch.py --missing [SPACE]     list names that have neither a counterpart nor a reason
    python scripts/from_pytorch.py --names               read the names from the installed PyTorch again

A name counts if PyTorch documents it. `scripts/from_pytorch.toml` gives the reason for each name that is left out.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "scripts" / "pytorch_names.json"
RULES = tomllib.loads((ROOT / "scripts" / "from_pytorch.toml").read_text())
REASONS = {pattern: rule["why"] for rule in RULES["left_out"] for pattern in rule["names"].split()}
PAGE = ROOT / "docs" / "from-pytorch.md"
LEFT_OUT = ROOT / "ox" / "porting" / "left_out.json"

SPACES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.Module", "torch.nn.functional", "torch.nn.init", "torch.nn.utils",
    "torch.nn.utils.rnn", "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.utils.prune",
    "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.autograd", "torch.autograd.functional",
    "torch.autograd.function", "torch.autograd.graph", "torch.func", "torch.linalg", "torch.fft", "torch.special",
    "torch.sparse", "torch.utils.data", "torch.utils.checkpoint", "torch.utils.dlpack", "torch.utils.benchmark",
    "torch.profiler", "torch.random", "torch.cuda", "torch.testing",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One name: its path in ox, or the reason why ox lacks it; with neither, it is missing."""

    name: str
    found: str | None = None
    reason: str | None = None

    @property
    def counted(self) -> str:
        return "there" if self.found else "left out" if self.reason else "missing"


def read_names() -> dict[str, list[str]]:
    """The documented names of the installed PyTorch."""
    spaces = {}
    for space in SPACES:
        owner = resolve(space)
        names = {n for n in dir(owner) if not n.startswith("_") and counts(space, n, getattr(owner, n))}
        spaces[space] = sorted(names | set(RULES["also"].get(space, "").split()))
    return spaces


def counts(space: str, name: str, thing: Any) -> bool:
    """Whether PyTorch documents this name as its own."""
    if any(fnmatchcase(f"{space}.{name}", pattern) for pattern in RULES["foreign"]["names"].split()):
        return False
    text = getattr(thing, "__doc__", None)
    if inspect.ismodule(thing) or not callable(thing) or not (isinstance(text, str) and text.strip()):
        return False
    home = getattr(thing, "__module__", None) or "torch"
    if not home.startswith("torch") or home.startswith(("torch.overrides", "torch._jit", "torch._sources")):
        return False
    if inspect.isclass(thing):
        return space != "torch" and not home.startswith("torch._") and space.removesuffix(".Module") != "torch.Tensor"
    return not (space.startswith("torch.nn.utils") and home.startswith("torch.nn.modules"))


def resolve(path: str) -> Any:
    """The module or attribute of a dotted path."""
    parts = path.split(".")
    thing = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        if not hasattr(thing, part):
            importlib.import_module(".".join(parts[:i]))
        thing = getattr(thing, part)
    return thing


def entries(space: str, names: list[str]) -> list[Entry]:
    return [entry(space, name) for name in names]


def entry(space: str, name: str) -> Entry:
    full = f"{space}.{name}"
    here = "ox" + full.removeprefix("torch")
    spelled = RULES["spelled"].get(full)
    if spelled is not None and exists(spelled):
        return Entry(name, found=spelled)
    if exists(here):
        return Entry(name, found=here)
    return Entry(name, reason=next((why for pattern, why in REASONS.items() if fnmatchcase(full, pattern)), None))


def exists(path: str) -> bool:
    owner, _, name = path.rpartition(".")
    try:
        return hasattr(resolve(owner), name)
    except (ImportError, AttributeError):
        return False


def page(spaces: dict[str, list[str]], version: str) -> str:
    """The text of docs/from-pytorch.md."""
    found = {space: entries(space, names) for space, names in spaces.items()}
    lines = [HEAD.format(version=version), "| namespace | names | in ox | left out | missing | covered |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for space, listed in found.items():
        kinds = [e.counted for e in listed]
        there = kinds.count("there")
        lines.append(
            f"| `{space}` | {len(listed)} | {there} | {kinds.count('left out')} | {kinds.count('missing')} "
            f"| {100 * there / len(listed):.0f} % |"
        )
    for space, listed in found.items():
        lines += ["", f"## {space}", ""]
        same = [e.name for e in listed if e.found == f"ox{space.removeprefix('torch')}.{e.name}"]
        other = [e for e in listed if e.found and e.name not in same]
        text = "Same name: " + (", ".join(f"`{n}`" for n in same) or "none") + "."
        lines += textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)
        if other:
            lines += ["", "| PyTorch | ox |", "|---|---|", *(f"| `{e.name}` | `{e.found}` |" for e in other)]
        reasons: dict[str, list[str]] = {}
        for e in listed:
            if not e.found:
                reasons.setdefault(e.reason or "not in ox yet", []).append(e.name)
        if reasons:
            lines += ["", "| not in ox | reason |", "|---|---|"]
            lines += [f"| {', '.join(f'`{n}`' for n in names)} | {why} |" for why, names in reasons.items()]
    return "\n".join(lines) + "\n"


def left_out(spaces: dict[str, list[str]]) -> str:
    """The text of ox/porting/left_out.json, which `ox port` reads: names that ox lacks, and what to use instead."""
    reasons = {f"{space}.{e.name}": e.reason for space, names in spaces.items() for e in entries(space, names)}
    spelled = {name: here for name, here in RULES["spelled"].items() if exists(here)}
    table = {name: reason.replace("`", "") for name, reason in reasons.items() if reason} | spelled
    return json.dumps(table, indent=0, sort_keys=True) + "\n"


HEAD = """# From PyTorch

Generated by `python scripts/from_pytorch.py`; do not edit. This page lists every name that PyTorch {version} documents
in the namespaces below, and says whether ox has it under the same name, under another name, or not (with the reason).

## Converting a script

A script that uses only names that ox has works after you change its imports: `import ox as torch`,
`from ox import nn`, `import ox.nn.functional as F`, `from ox.utils.data import DataLoader`. `ox port` does this:

<!-- not run: train.py and src are the reader's own -->
```bash
ox port train.py -o ported.py    # one file; a folder with -o FOLDER; --in-place overwrites the input
ox port --check src              # writes nothing; lists names without a counterpart, exit code 1 if there are any
```

It rewrites all imports of `torch`, `torchvision` (`ox.vision`: transforms, datasets, models, ops, utils), `functorch`
and `einops.layers.torch`. An import of nothing that ox has (`torchvision.models._api`) stays as it is; such names
beside others get a statement of their own. It changes nothing else and runs nothing. It names the libraries that need
PyTorch itself (transformers, peft, timm, ...) and lists
each name without a counterpart with its place and what to use instead (`--json` for programs). If the script checks for
the name with `hasattr` or catches the error, the name is marked as guarded.

```text
train.py:31:12: torch.onnx: ox.export.save(model, 'model.onnx', example) and ox.export.load
train.py: 4 imports to rewrite, 1 without a counterpart
```

`ox port` looks up the attributes of modules and classes in ox. The type of a value is known only at run time, so it
lists a missing method only if no other common type has a method of that name (`x.share_memory_()`). It does not look at
names in strings, or at names that `importlib` or `getattr` use. It also lists two names that exist but return something
else:

- **`torch.__version__`** is the version of ox. For code that compares versions, `ox.version.torch` is the version of
  PyTorch whose names ox has.
- **dtypes** are NumPy's and print as such: `str(x.dtype)` is `float32`. `==`, `in`, keys of a dict,
  `isinstance(d, torch.dtype)`, `getattr(torch, "float32")`, `.itemsize` and `str(x.dtype).split(".")[-1]` work as in
  PyTorch. Replace `x.dtype.is_floating_point` by `x.is_floating_point()`.

## Differences

A function with the same name has the same arguments, the same defaults and the same result except for rounding.
`tests/parity` compares them, with positional and with keyword arguments. Three differences concern everything:

- **No complex numbers**, because ONNX operators do not support them. Functions of `ox.fft` return pairs of real and
  imaginary part instead. Such a tensor has a mark; a tensor without the mark is real.
  - The last dimension has size 2. `view_as_real` shows it; `shape`, `numel` and every `dim` ignore it.
  - These functions give PyTorch's results: `ox.fft` and `ox.istft`; `+` and `-` of two such tensors; `*` and `/` by
    real numbers and tensors; `conj`, `real`, `imag`, `numpy`, sums and means; functions that move, join, cut or copy.
  - `abs`, `angle`, `*` of two such tensors and all other functions that have another meaning for complex numbers are
    refused.
  - `p = ox.view_as_real(x)` returns the pairs as an ordinary tensor: the absolute value is
    `p.square().sum(-1).sqrt()`, the angle `ox.atan2(p[..., 1], p[..., 0])`. `ox.view_as_complex(p)` converts back.
  - `stft` returns pairs with `return_complex=False` and refuses `True`.
- **Other random numbers**: `manual_seed(0); rand(2)` gives other values than in PyTorch. With
  `ox.random.torch_compatible(True)`, ox draws PyTorch's numbers, from the initial weights and dropout to the order of a
  shuffled loader: see [random numbers](random.md).
- **`x.array`** is the NumPy or CuPy array itself. `x.data` is a tensor, as in PyTorch.

Smaller differences:

- NumPy's argument names (`axis`, `keepdims`, `x1`, `x2`) work, except for functions that are a single operator (`add`,
  `exp`), which they would slow down.
- `out=` must have the shape of the result or no elements. ox refuses another shape; PyTorch warns and resizes the
  tensor. ox also refuses a result that requires a gradient.
- Long sums on the CPU round less than PyTorch's where PyTorch adds one number after the other: those of `index_add`,
  `scatter_add`, `bincount`, the gradient of `embedding` and large average pools. Three kinds round as PyTorch's do:
  an embedding's gradient where the table has more rows than were looked up; such sums on a GPU; and those of a graph
  that ONNX Runtime runs as a whole.
- `layout=` and `pin_memory=` have no effect. `memory_format=ox.channels_last` and `channels_last_3d` have theirs on
  tensors (`to`, `contiguous`, `clone`, `is_contiguous`, `float` and the like), which [cuDNN](gpu.md#cudnn) takes as
  they lie. They have none in functions that make tensors (`empty_like`), and on modules, whose parameters stay
  row-major: a warning says so.
- `torch.compile` records calls and runs them as graphs: see [compile](compile.md). Its `mode` has no effect.
- Settings without an equivalent in ox (`torch.jit.script`, `add_safe_globals`) have no effect and
  print one message. `torch.onnx.export` calls `ox.export.save`. `nn.DataParallel` runs its module on one device.
- Functions of ox treat a tensor class with `__torch_function__` as a plain tensor.
- Modules print as in PyTorch. A `torch.Size` and a named result (`x.max(0)`) print as tuples.

`tests/zoo/programs` contains whole training scripts in the style of pytorch/examples, pytorch/tutorials,
torchvision, timm, lucidrains, karpathy/nanoGPT, CleanRL, Hugging Face, detectron2, pytorch-CycleGAN-and-pix2pix,
nerf-pytorch, SIREN, MoCo, Swin-Transformer, pygcn, pyGAT, torchdiffeq, pytorch-crf and MAML-Pytorch, written for this
test. Each script runs unchanged under PyTorch, and under ox in the form that `ox port` writes. Both must print the
same, and ox must export the model: `python -m pytest tests/parity/test_zoo.py`.

[Other libraries](interoperability.md) describes einops, checkpoints in `.pt` files and sparse matrices.

## Coverage

"""


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--names"]:
        import torch

        version = torch.__version__.partition("+")[0]
        NAMES.write_text(json.dumps({"version": version, "spaces": read_names()}, indent=0) + "\n")
        return
    stored = json.loads(NAMES.read_text())
    if arguments[:1] == ["--missing"]:
        for space in arguments[1:] or stored["spaces"]:
            names = [e.name for e in entries(space, stored["spaces"][space]) if e.counted == "missing"]
            print(f"{space}: {len(names)} of {len(stored['spaces'][space])} missing\n  {' '.join(names)}")
        return
    for path, text in ((PAGE, page(stored["spaces"], stored["version"])), (LEFT_OUT, left_out(stored["spaces"]))):
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
