"""docs/from-pytorch.md: each PyTorch name, and what stands for it in ox; and what `ox port` knows of them.

    python scripts/from_pytorch.py                       write the page and ox/porting/left_out.json
    python scripts/from_pytorch.py --missing [SPACE]     the names that have neither a counterpart nor a reason
    python scripts/from_pytorch.py --names               read the names anew from the installed PyTorch

A name counts if PyTorch documents it. What is left out says why in `scripts/from_pytorch.toml`.
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
    """One name: where it is in ox, or why it is not there; neither means that it is missing."""

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
    """Whether a name is one that PyTorch documents as its own."""
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
    lines = [HEAD.format(version=version), "| namespace | names | there | left out | missing | covered |"]
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
        text = "The same name: " + (", ".join(f"`{n}`" for n in same) or "none") + "."
        lines += textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)
        if other:
            lines += ["", "| PyTorch | ox |", "|---|---|", *(f"| `{e.name}` | `{e.found}` |" for e in other)]
        reasons: dict[str, list[str]] = {}
        for e in listed:
            if not e.found:
                reasons.setdefault(e.reason or "not there yet", []).append(e.name)
        if reasons:
            lines += ["", "| not there | why |", "|---|---|"]
            lines += [f"| {', '.join(f'`{n}`' for n in names)} | {why} |" for why, names in reasons.items()]
    return "\n".join(lines) + "\n"


def left_out(spaces: dict[str, list[str]]) -> str:
    """The text of ox/porting/left_out.json, which `ox port` reads: names that are not there, and the way out."""
    reasons = {f"{space}.{e.name}": e.reason for space, names in spaces.items() for e in entries(space, names)}
    spelled = {name: here for name, here in RULES["spelled"].items() if exists(here)}
    table = {name: reason.replace("`", "") for name, reason in reasons.items() if reason} | spelled
    return json.dumps(table, indent=0, sort_keys=True) + "\n"


HEAD = """# From PyTorch

Generated by `python scripts/from_pytorch.py`; do not edit. Every name that PyTorch {version} documents in these
namespaces: there under the same name, spelled differently, or not there and why. A script that uses what is there moves
over with its imports changed: `import ox as torch`, `from ox import nn`, `import ox.nn.functional as F`,
`from ox.utils.data import DataLoader`. `ox port` does that:

<!-- not run: train.py and src are the reader's own -->
```bash
ox port train.py -o ported.py    # a file; or a folder with -o FOLDER; or over itself with --in-place
ox port --check src              # writes nothing: what has no counterpart, and exit code 1 if there is any
```

It rewrites the imports of `torch`, `torchvision` (`ox.vision`: transforms, datasets, models, ops, utils), `functorch`
and `einops.layers.torch`, wherever they stand, and leaves every other byte as it is; nothing is run. What has no
counterpart is listed with its place and the way out (`--json` for programs), and as guarded where the script asks
`hasattr` first or catches the error:

```text
train.py:31:12: torch.onnx: ox.export.save(model, 'model.onnx', example) and ox.export.load
train.py: 4 imports to rewrite, 1 without a counterpart
```

Attributes of modules and classes are looked up in ox itself. What a value has is known at run time only, so a method is
listed where no other common type has one of that name (`x.share_memory_()`). Names in strings, and what
`importlib` or `getattr` name, are the script's own matter. Two things that are there say something else, and are
listed, too:

- **`torch.__version__`** is ox's own version. `ox.version.torch` is that of the PyTorch whose names ox has, for code
  that compares versions.
- **dtypes** are NumPy's, and print as such: `str(x.dtype)` is `float32`. `==`, `in`, keys of a dict,
  `isinstance(d, torch.dtype)`, `getattr(torch, "float32")`, `.itemsize` and `str(x.dtype).split(".")[-1]` work as in
  PyTorch; in place of `x.dtype.is_floating_point` stands `x.is_floating_point()`.

What a script switches and ox has nothing to switch (`torch.compile`, `torch.jit.script`, `add_safe_globals`) does
nothing, and says so once. `torch.onnx.export` leads to `ox.export.save`; `nn.DataParallel` runs its module on one
device. A tensor class with `__torch_function__` is a plain tensor to ox's functions. Modules print as PyTorch's do; a
`torch.Size` and a named result (`x.max(0)`) print as the tuples that they are.

Same name means same arguments, same defaults and the same result to rounding; `tests/parity` compares them, by
position and by name. NumPy's names (`axis`, `keepdims`, `x1`, `x2`) are taken, too, but by functions of a single
operator (`add`, `exp`), which more names would slow. `out=` is a tensor of the result's shape, or one without elements;
another shape is refused, where PyTorch warns and changes it, and so is a result that requires a gradient. `layout=`,
`pin_memory=` and `memory_format=` change nothing. Three differences run through everything:

- **No complex numbers**, for ONNX operators have none. What `ox.fft` gives stands for them: pairs in a last dimension
  of 2, which `view_as_real` shows; `shape`, `numel` and every `dim` are those of the numbers. `ox.fft` and `ox.istft`
  take them again; `+` and `-` of two, `*` and `/` by real numbers and tensors, `conj`, `real`, `imag`, `numpy`, sums,
  means, and what moves, joins, cuts or copies are PyTorch's; `abs`, `angle`, `*` of two and whatever else means another
  thing for complex numbers is refused. `p = ox.view_as_real(x)` is the pairs as a tensor like others: the modulus is
  `p.square().sum(-1).sqrt()`, the angle `ox.atan2(p[..., 1], p[..., 0])`; `ox.view_as_complex(p)` is the way back. A
  tensor without the mark is real. `stft` gives pairs, with `return_complex=False`, and refuses `True`.
- **Random numbers** are others: `manual_seed(0); rand(2)` is not PyTorch's. Its numbers, from the initial weights and
  dropout to the order of a shuffled loader, come with `ox.random.torch_compatible(True)`: [random numbers](random.md).
- **`x.array`** is the NumPy or CuPy array itself; `x.data` is a tensor, as in PyTorch.

`tests/parity/public` holds whole training scripts, written for it in the style of pytorch/examples, pytorch/tutorials,
torchvision, timm, lucidrains, karpathy/nanoGPT, CleanRL, Hugging Face, detectron2, pytorch-CycleGAN-and-pix2pix,
nerf-pytorch, SIREN, MoCo, Swin-Transformer, pygcn, pyGAT, torchdiffeq, pytorch-crf and MAML-Pytorch. Each runs as it is
under PyTorch and as `ox port` writes it, prints the same, and exports:
`python -m pytest tests/parity/test_public_scripts.py`.

What scripts bring along, einops, checkpoints in `.pt` files, sparse matrices: [other libraries](interoperability.md).
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
