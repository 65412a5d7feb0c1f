"""Names of PyTorch: where they are in ox, and the way out where they are not."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
from functools import cache
from importlib import resources

from ox.core.lazy import missing

# the modules whose imports are rewritten, and what stands for them
MODULES = {"torch": "ox", "torchvision": "ox.vision", "functorch": "ox.func", "einops.layers.torch": "ox.einops"}
_KNOWN = {**MODULES, "ox": "ox"}  # so that a script can be checked again once its imports are rewritten

_OF_PYTORCH = "it works on PyTorch's own tensors"
# packages that a script may import beside PyTorch, and that need PyTorch itself
NEED_PYTORCH = {
    "accelerate": "a plain loop, and `ox launch` for several processes",
    "albumentations": "its transforms of NumPy images work as they are; albumentations.pytorch needs PyTorch",
    "allennlp": _OF_PYTORCH,
    "apex": "ox.amp for mixed precision, ox.nn.parallel.DistributedDataParallel for several processes",
    "auraloss": _OF_PYTORCH,
    "bitsandbytes": _OF_PYTORCH,
    "botorch": _OF_PYTORCH,
    "captum": "gradients of an input by ox.autograd.grad",
    "clip": _OF_PYTORCH,
    "composer": "ox.train.Trainer, or a plain loop",
    "deepspeed": "ox.nn.parallel.DistributedDataParallel and `ox launch`",
    "detectron2": _OF_PYTORCH,
    "dgl": "index_add and scatter_reduce over an edge list",
    "diffusers": _OF_PYTORCH,
    "e3nn": _OF_PYTORCH,
    "escnn": _OF_PYTORCH,
    "fairscale": "ox.nn.parallel, and `ox launch` for several processes",
    "fairseq": _OF_PYTORCH,
    "fastai": _OF_PYTORCH,
    "flash_attn": "F.scaled_dot_product_attention",
    "fvcore": _OF_PYTORCH,
    "gpytorch": _OF_PYTORCH,
    "horovod": "ox.nn.parallel.DistributedDataParallel and `ox launch`",
    "ignite": "ox.train.Trainer, or a plain loop",
    "kornia": "ox.vision.transforms",
    "lightly": _OF_PYTORCH,
    "lightning": "ox.train.Trainer, or a plain loop",
    "lightning_fabric": "ox.train.Trainer, or a plain loop",
    "lpips": _OF_PYTORCH,
    "mmcv": _OF_PYTORCH,
    "monai": "ox.nn for its layers, ox.data.transforms for its transforms",
    "open_clip": _OF_PYTORCH,
    "optimum": "ox.export.load reads its ONNX files",
    "peft": "ox.nn.utils.parametrize adds low-rank weights",
    "pyro": "ox.distributions",
    "pytorch3d": _OF_PYTORCH,
    "pytorch_lightning": "ox.train.Trainer, or a plain loop",
    "pytorch_metric_learning": "ox.nn.functional has its losses of pairs and triplets",
    "pytorch_msssim": _OF_PYTORCH,
    "segmentation_models_pytorch": _OF_PYTORCH,
    "sentence_transformers": "ox.export.load reads its models as ONNX files",
    "skorch": "ox.train.Trainer, or a plain loop",
    "speechbrain": _OF_PYTORCH,
    "stable_baselines3": _OF_PYTORCH,
    "tensordict": "a dict of tensors",
    "timm": _OF_PYTORCH,
    "torch_cluster": _OF_PYTORCH,
    "torch_ema": "ox.optim.swa_utils.AveragedModel",
    "torch_geometric": "index_add and scatter_reduce over an edge list",
    "torch_optimizer": _OF_PYTORCH,
    "torch_scatter": "Tensor.scatter_reduce and Tensor.index_add",
    "torch_sparse": "ox.sparse",
    "torch_xla": "ox runs on cpu and cuda",
    "torchaudio": "ox.stft, and the functions of ox.signal",
    "torchcontrib": "ox.optim.swa_utils",
    "torchdata": "ox.data",
    "torchdiffeq": _OF_PYTORCH,
    "torchinfo": "`ox inspect` shows an exported file",
    "torchmetrics": "ox.train.metrics, or a few lines of tensors",
    "torchrl": _OF_PYTORCH,
    "torchsde": _OF_PYTORCH,
    "torchsummary": "`ox inspect` shows an exported file",
    "torchtext": "ox.data.datasets has text; its tokenizers are those of the package tokenizers",
    "transformers": "ox_models has GPT-2, Llama and BERT and reads their checkpoints",
    "triton": "an operator is written in Python; see ox.core.operator",
    "trl": _OF_PYTORCH,
    "ultralytics": "ox.export.load reads its models as ONNX files",
    "warmup_scheduler": "ox.optim.lr_scheduler",
    "xformers": "F.scaled_dot_product_attention",
}
ON_ARRAYS = {"albumentations"}  # of these, what works on NumPy's arrays and needs no PyTorch

# what to do about any name that a namespace has not
NAMESPACES = {
    "torch.distributed": "dir(ox.distributed) lists those there",
    "torch.distributions": "dir(ox.distributions) lists those there; a subclass of ox.distributions.Distribution",
    "torch.onnx": "ox.onnx.export, or ox.export.save",
    "torch.jit": "the code runs as it is written; ox.export.save writes a model as a graph",
    "torchvision.datasets": "ox.data.datasets lists those there; ImageFolder, or an ox.data.Dataset of your own",
    "torchvision.models": "dir(ox.vision.models) lists those there; a model file of your own moves over with ox port",
    "torchvision.ops": "dir(ox.vision.ops) lists those there",
    "torchvision.transforms": "dir(ox.data.transforms) lists those there; any function of an image is a transform",
}
NOTHING = "ox has no replacement; compute it with other functions"


@cache
def left_out() -> dict[str, str]:
    """Documented names of PyTorch that ox leaves out, and why: the tables of docs/from-pytorch.md."""
    text = resources.files("ox.porting").joinpath("left_out.json").read_text(encoding="utf-8")
    table: dict[str, str] = json.loads(text)
    return table


def module_of(path: str) -> str | None:
    """The module of PyTorch, or of ox, that a path starts with: ``torch`` of ``torch.nn``; None for all others."""
    return next((name for name in _KNOWN if f"{path}.".startswith(f"{name}.")), None)


def counterpart(path: str) -> str:
    """The path in ox of a path of PyTorch: ``torch.nn.ReLU`` is ``ox.nn.ReLU``."""
    module = module_of(path)
    return path if module is None else _KNOWN[module] + path.removeprefix(module)


def existing_prefix(path: str) -> str:
    """As much of a path of PyTorch, from its start, as ox has; all of it if nothing is missing."""
    known = module_of(path)
    assert known is not None, path
    thing: object = importlib.import_module(_KNOWN[known])
    for part in path.removeprefix(known).split(".")[1:]:
        inner = f"{known}.{part}"
        try:
            thing = getattr(thing, part)
        except ImportError:  # a room whose library is not installed
            return path
        except AttributeError:
            if inspect.isclass(thing):
                in_instances = any(part in vars(base).get("__annotations__", ()) for base in thing.__mro__)
                return path if in_instances else known
            if not inspect.ismodule(thing):
                return path  # what a value has is known when it runs
            try:
                thing = importlib.import_module(counterpart(inner))
            except ImportError:
                return known
        known = inner
    return path


def way_out(path: str) -> str:
    """What to do about a name of PyTorch, given by its whole path, that ox has not."""
    parts = path.split(".")
    if parts[0] in NEED_PYTORCH:
        said = NEED_PYTORCH[parts[0]]
        return said if parts[0] in ON_ARRAYS else f"{said}; the package itself needs PyTorch"
    for count in range(len(parts), 1, -1):
        prefix = ".".join(parts[:count])
        owner, _, name = counterpart(prefix).rpartition(".")
        if hint := missing(owner, name) or left_out().get(prefix.replace("ox.", "torch.", 1)):
            return hint
    if len(parts) == 2 and (hint := left_out().get(f"torch.Tensor.{parts[1]}")):
        return hint
    if any(part.startswith("_") for part in parts):
        return "part of PyTorch's own machinery"
    owner = existing_prefix(path)
    if hint := next((hint for space, hint in NAMESPACES.items() if path.startswith(f"{space}.")), None):
        return hint
    near = difflib.get_close_matches(path[len(owner) + 1 :].partition(".")[0], dir(_thing(owner)), 1, 0.8)
    return f"perhaps {owner}.{near[0]}" if near else NOTHING


def _thing(path: str) -> object:
    module = module_of(path) or path
    thing: object = importlib.import_module(_KNOWN[module])
    for part in path.removeprefix(module).split(".")[1:]:
        thing = getattr(thing, part)
    return thing
