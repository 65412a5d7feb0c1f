"""Files of ox and of PyTorch's exporter: how many nodes they have, and how long ONNX Runtime takes for them.

`torch.onnx.export(dynamo=True, optimize=True)` writes PyTorch's file, optimized by onnxscript; `ox.export.save` those
of ox, as the models are and for inference. The weights are equal, and so must the outputs be. The batch is dynamic;
with SIZES=all, all sizes that can be. Sessions have one thread and otherwise default options. Words select models.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import sides
from export_sequence_models import sequence_models
from export_vision_models import Model, vision_models

FOLDER, ALL_SIZES = "EXPORT_NODES_FOLDER", os.environ.get("SIZES") == "all"
KINDS = ("ox", "ox as written", "torch")
SECONDS = 0.15  # of runs for each file and process
Sizes = dict[str, dict[int, str]]


def zoo(lib: Any) -> dict[str, Model]:
    return {**vision_models(lib), **sequence_models(lib)}


def open_sizes(model: Model) -> Sizes:
    """The sizes that vary, by input: all that can, or the first of each that is the batch."""
    if ALL_SIZES:
        return model.open_sizes
    return {n: {0: axes[0]} for n, axes in model.open_sizes.items() if 0 in axes}


def write_ox(model: Any, page: Model, path: Path, optimize: str | None) -> None:
    import ox

    sizes = open_sizes(page)
    dims = {n: [sizes.get(n, {}).get(i, size) for i, size in enumerate(a.shape)] for n, a in page.inputs.items()}
    example = tuple(page.inputs.values())
    ox.export.save(model, path, example, dims=dims, optimize=optimize, input_names=list(page.inputs))


def write_torch(model: Any, page: Model, path: Path) -> None:
    import torch

    sizes = open_sizes(page)
    open_ = {n: dict.fromkeys(sizes.get(n, {}), torch.export.Dim.DYNAMIC) for n in page.inputs}
    example = tuple(torch.from_numpy(a) for a in page.inputs.values())
    torch.onnx.export(
        model, example, path, dynamo=True, optimize=True, dynamic_shapes=open_, verbose=False, external_data=False,
        input_names=list(page.inputs),
    )  # fmt: skip


def twin(name: str, theirs: Model, weights: Mapping[str, Any]) -> Any:
    """PyTorch's module with the weights of ox's."""
    import torch

    model = theirs.make()
    model.load_state_dict({key: torch.from_numpy(t.numpy().copy()) for key, t in weights.items()})
    return model.eval()


def trained(model: Any) -> Any:
    """The model with batch norms that are not as they begin."""
    import ox

    random = np.random.default_rng(1)
    for key, tensor in model.state_dict().items():
        if "running" in key:
            tensor.copy_(ox.from_numpy(random.uniform(0.5, 1.5, tensor.shape).astype(np.float32)))
    return model.eval()


def nodes(path: Path) -> int:
    """Without Constants, the body of a function at each call."""
    import onnx
    import onnx.inliner

    model = onnx.load(path)
    graph = onnx.inliner.inline_local_functions(model).graph if model.functions else model.graph

    def count(graph: Any) -> int:
        inside = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
        return sum(n.op_type != "Constant" for n in graph.node) + sum(map(count, inside))

    return count(graph)


def export(name: str, ours: Model, theirs: Model | None, folder: Path) -> dict[str, int | str]:
    """Write the files of a model, and return the nodes of each, or why there is none."""
    import ox

    found: dict[str, int | str] = {}
    ox.manual_seed(0)
    model = trained(ours.make())
    for kind in KINDS:
        path = folder / f"{name}.{kind}.onnx"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if kind != "torch":
                    write_ox(model, ours, path, "inference" if kind == "ox" else None)
                elif theirs is None:
                    continue
                else:
                    write_torch(twin(name, theirs, model.state_dict()), theirs, path)
            found[kind] = nodes(path)
        except Exception as error:  # an exporter may fail in any way
            found[kind] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return found


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def check_equal(name: str, page: Model, folder: Path) -> None:
    """Every file gives the same outputs, at another batch size too."""
    from ox import tolerance

    for batch in (None, 2):
        results = []
        for kind in KINDS:
            path = folder / f"{name}.{kind}.onnx"
            if path.exists():
                opened = session(path)
                sizes = open_sizes(page)
                feed = {
                    n: a[:batch] if 0 in sizes.get(n, {}) and "batch" in sizes[n].values() else a
                    for n, a in page.inputs.items()
                }
                results.append((kind, opened.run(None, {i.name: feed[i.name] for i in opened.get_inputs()})))
        for kind, result in results[1:]:
            for a, b in zip(results[0][1], result, strict=True):
                difference = tolerance.compare(b, a)
                if not difference.ok:
                    raise AssertionError(f"{name}: {kind} differs from {results[0][0]} by {difference}")


def latency(kind: str) -> sides.Figures:
    """The median time of a run of each file, in microseconds."""
    import ox

    folder, found = Path(os.environ[FOLDER]), {}
    for name, page in chosen(zoo(ox)).items():
        path = folder / f"{name}.{kind}.onnx"
        if not path.exists():
            continue
        opened = session(path)
        feed = {i.name: page.inputs[i.name] for i in opened.get_inputs()}
        times: list[float] = []
        for _ in range(5):
            opened.run(None, feed)
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times) < 20:
            start = time.perf_counter()
            opened.run(None, feed)
            times.append(time.perf_counter() - start)
        found[name] = statistics.median(times) * 1e6
    return found


def chosen(models: Mapping[str, Model]) -> dict[str, Model]:
    words = os.environ.get("WORDS", "").split("|")
    return {name: model for name, model in models.items() if any(word.lower() in name.lower() for word in words)}


SIDES = {kind: (lambda kind=kind: latency(kind)) for kind in KINDS}


def main(words: list[str]) -> None:
    import ox

    os.environ["WORDS"] = "|".join(words)
    theirs: dict[str, Model] = {}
    if find_spec("torch") is not None and find_spec("onnxscript") is not None:
        import torch

        theirs = zoo(torch)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(os.environ.get(FOLDER) or made)
        os.environ[FOLDER] = str(folder)
        counts = {}
        for name, page in chosen(zoo(ox)).items():
            counts[name] = export(name, page, theirs.get(name), folder)
            check_equal(name, page, folder)
            print(name, counts[name], file=sys.stderr, flush=True)
        times = sides.measure(__file__, KINDS if sides.ROUNDS else ()).figures
        print(table(counts, times))


def table(counts: Mapping[str, Mapping[str, int | str]], times: sides.Table) -> str:
    """Markdown: nodes and ratio to PyTorch's file, latency in µs and ratio."""
    lines = [
        "| model | nodes: ox | as written | torch | ox/torch | µs: ox | as written | torch | ox/torch |",
        "|---" * 9 + "|",
    ]
    ratios: dict[str, list[float]] = {"nodes": [], "time": []}
    for name, count in counts.items():
        medians = {kind: statistics.median(v) for kind, v in times.get(name, {}).items()}
        cells = [name]
        for figures, key, form in ((count, "nodes", "{}"), (medians, "time", "{:.0f}")):
            numbers = {kind: n for kind, n in figures.items() if not isinstance(n, str)}
            cells += [form.format(numbers[kind]) if kind in numbers else "–" for kind in KINDS]
            ratio = numbers["ox"] / numbers["torch"] if {"ox", "torch"} <= numbers.keys() else None
            cells.append("–" if ratio is None else f"{ratio:.2f}")
            if ratio is not None:
                ratios[key].append(ratio)
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        f"geometric mean of {key}: {statistics.geometric_mean(found):.3f}" for key, found in ratios.items() if found
    ]
    failed = [
        (name, kind, why) for name, count in counts.items() for kind, why in count.items() if isinstance(why, str)
    ]
    return "\n".join([*lines, *(f"not exported: {name}, {kind}: {why}" for name, kind, why in failed)])


if __name__ == "__main__":
    if "--side" in sys.argv:
        sides.answer(SIDES)
    else:
        main(sys.argv[1:])
