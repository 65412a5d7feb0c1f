"""Paths stay importable: modules under PyTorch's paths, and every name that a page of docs or a docstring spells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.core.operator import OPS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/*.md")])

# The modules that PyTorch has under the same path, with those of `torch.utils.data` also at `ox.data`.
MODULES = re.findall(
    r"\S+",
    """
    ox._dynamo ox._utils ox.accelerator ox.amp ox.amp.grad_scaler ox.autograd ox.autograd.anomaly_mode
    ox.autograd.function ox.autograd.functional ox.autograd.grad_mode ox.autograd.gradcheck ox.autograd.graph
    ox.autograd.variable ox.backends ox.backends.cpu ox.backends.cuda ox.backends.cudnn ox.backends.mkl
    ox.backends.mkldnn ox.backends.mps ox.backends.openmp ox.backends.opt_einsum ox.compiler ox.cpu ox.cpu.amp
    ox.cuda ox.cuda.amp ox.cuda.memory ox.cuda.nvtx ox.cuda.random ox.data ox.distributed
    ox.distributed.algorithms ox.distributed.algorithms.ddp_comm_hooks
    ox.distributed.algorithms.ddp_comm_hooks.debugging_hooks
    ox.distributed.algorithms.ddp_comm_hooks.default_hooks ox.distributed.elastic ox.distributed.launcher
    ox.distributed.optim ox.distributions ox.distributions.bernoulli ox.distributions.categorical
    ox.distributions.constraints ox.distributions.distribution ox.distributions.gamma
    ox.distributions.independent ox.distributions.normal ox.distributions.transforms ox.export ox.fft ox.func
    ox.futures ox.fx ox.hub ox.jit ox.linalg ox.mps ox.multiprocessing ox.nn ox.nn.attention ox.nn.common_types
    ox.nn.functional ox.nn.init ox.nn.modules ox.nn.modules.module ox.nn.modules.utils ox.nn.parallel
    ox.nn.parallel.data_parallel ox.nn.parallel.distributed ox.nn.parameter ox.nn.utils ox.nn.utils.clip_grad
    ox.nn.utils.convert_parameters ox.nn.utils.fusion ox.nn.utils.parametrizations ox.nn.utils.parametrize
    ox.nn.utils.prune ox.nn.utils.rnn ox.nn.utils.spectral_norm ox.nn.utils.stateless ox.nn.utils.weight_norm
    ox.onnx ox.ops ox.optim ox.optim.adadelta ox.optim.adagrad ox.optim.adam ox.optim.adamax ox.optim.asgd
    ox.optim.lbfgs ox.optim.lr_scheduler ox.optim.nadam ox.optim.optimizer ox.optim.radam ox.optim.rmsprop
    ox.optim.rprop ox.optim.sgd ox.optim.sparse_adam ox.optim.swa_utils ox.overrides ox.profiler ox.random
    ox.serialization ox.signal ox.signal.windows ox.sparse ox.special ox.testing ox.types ox.utils
    ox.utils._pytree ox.utils.benchmark ox.utils.checkpoint ox.utils.data ox.utils.data.dataloader
    ox.utils.data.dataset ox.utils.data.distributed ox.utils.data.sampler ox.utils.dlpack ox.utils.hooks
    ox.utils.model_zoo ox.version ox.xpu
    ox.data.dataset ox.data.distributed ox.data.sampler
    """,
)

# Spelled like a path, but something else: a file, fields of metadata or of a trace, an example, a class of old.
OTHER = {
    *("ox.toml", "ox.buffers", "ox.contract", "ox.golden", "ox.precision", "ox.proof", "ox.tolerance", "ox.recipe"),
    *("ox.run", "ox.step", "ox.target", "ox.dataset"),
    *("ox.Square", "ox.model", "ox.rows", "ox.batch.rows", "ox.request.id", "ox.serve.Options", "ox.train.Options"),
}


def resolve(path: str) -> Any:
    """The object of a dotted path, as `import` and attribute access find it."""
    first, *names = path.split(".")
    found, spelled = import_module(first), first
    for name in names:
        spelled += f".{name}"
        if not hasattr(found, name):
            import_module(spelled)
        found = getattr(found, name)
    return found


def spelled(text: str) -> set[str]:
    """The dotted paths of a page, and the names of its `from ... import` lines."""
    paths = set(re.findall(r"(?<![\w./-])(?:ox|ox_cli|ox_models)(?:\.[A-Za-z_]\w*)+", text))
    for module, names in re.findall(r"from (ox[\w.]*) import ([\w, ]+)", text):
        paths |= {f"{module}.{name.split()[0]}" for name in names.split(",") if name.strip()}
    return paths


def unresolved(text: str) -> list[str]:
    missing = []
    for path in sorted(spelled(text)):
        if path in OTHER or path in OPS:
            continue
        try:
            resolve(path)
        except (ModuleNotFoundError, AttributeError) as problem:
            missing.append(f"{path}: {problem}")
    return missing


@rows("path", MODULES)
def test_a_module_of_pytorch_has_its_path(path: str) -> None:
    assert import_module(path)


@rows("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_a_page_resolves(page: Path) -> None:
    text = page.read_text()
    if page.name == "CONTRIBUTING.md":  # its code adds what is not there yet; tests/test_contributing.py runs it
        text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    assert not unresolved(text)


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("folder", ["ox", "cli/ox_cli", "models/ox_models"])
def test_every_path_of_a_docstring_resolves(folder: str) -> None:
    missing = {
        str(path.relative_to(ROOT)): problems
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (problems := unresolved("\n\n".join(docstrings(path))))
    }
    assert not missing


def test_a_path_that_is_gone_is_seen() -> None:
    assert spelled("`ox.nn.Linear`, from ox.data import a as b, c") == {
        "ox.nn.Linear",
        "ox.data",
        "ox.data.a",
        "ox.data.c",
    }
    assert resolve("ox.nn.Linear").__name__ == "Linear"
    with pytest.raises(ModuleNotFoundError, match=r"ox\.nn\.Gone"):
        resolve("ox.nn.Gone")
