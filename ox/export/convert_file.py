"""`ox.export.convert`: a file for another opset or runtime, with sizes fixed, or without what only people read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from ox.autograd.grad_mode import no_grad
from ox.core.size_expression import evaluate, leaves, solve
from ox.core.symbolic import Dim
from ox.errors import ArgumentError, first_line
from ox.export.drawn_inputs import Feed, runnable
from ox.export.input_file import read_inputs
from ox.export.model_runtimes import open_model
from ox.export.prove_file import FileProof, prove
from ox.export.save_model import Report, save
from ox.functions.creation import tensor
from ox.graph.contract import CONTRACT, DATA
from ox.graph.size_rules import SizeRules, is_name_of
from ox.onnx_module.loaded import load
from ox.serialization.files import write_whole


def convert(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    opset: int | None = None,
    fix: Mapping[str, int] | None = None,
    strip: bool = False,
    optimize: str | None = None,
    target: str | None = None,
    inputs: Any = None,
) -> tuple[Report, FileProof]:
    """Write an ONNX file anew: read as a module, saved and proven as any model, and compared with the old file in ONNX
    Runtime.

    Args:
        path: the file.
        to: the new one, which may be the same.
        opset: as of `ox.export.save`.
        fix: sizes of inputs that varied, by their names: ``{"batch": 1}``.
        strip: leave out documentation, metadata (but for the sizes that the file is right for) and golden samples.
        optimize, target: as of `ox.export.save`.
        inputs: what both files run with, for one that takes no random numbers: arrays by input name, the path of an
            .npz file of them, or one array for the only input.

    Raises:
        LoadError: the file cannot be read.
        ExportError: what the opset cannot express, or the new file gives other numbers than the old one.
        ArgumentError: a size that is none of the file's, or inputs that it does not take.
    """
    path, to = Path(path), Path(to)
    net = load(path)
    infos, rules = net.contract.inputs, net.contract.rules
    names = {dim for info in infos for dim in info.dims if isinstance(dim, str)}
    fix = dict(fix or {})
    unknown = [name for name in fix if name not in names]
    if unknown:
        raise ArgumentError(
            f"no size is called '{unknown[0]}'", expected=", ".join(sorted(names)) or "none varies", got=str(fix)
        )
    if any(type(size) is not int or size < 1 for size in fix.values()):
        raise ArgumentError("a size that is fixed is a whole number, 1 at least", got=str(fix), hint="fix={'batch': 1}")
    if (broken := rules.broken(fix)) is not None:
        raise ArgumentError("the file is not for these sizes", expected=broken, got=str(fix))
    fix = _with_following(fix, rules)
    _, run = open_model(path)

    def both(feed: Feed) -> None:
        run(feed)
        with no_grad():
            net(**{name: tensor(x) for name, x in feed.items()})

    if inputs is None:
        runs = list(runnable(infos, net.contract, both))
        fewest, example = runs[0][0] or 1, runs[-1][1]
    else:
        fewest, example = 1, read_inputs(inputs, infos)
        try:
            both(example)
        except Exception as error:  # runtimes share no base class
            raise ArgumentError(f"{path} cannot run with these inputs", got=first_line(error)) from error
    batches = {str(info.dims[0]) for info in infos if info.dims and fewest > 1}
    unstated = fewest > max([1, *(rules.ranges[name].min for name in batches if name in rules.ranges)])
    infos = tuple(info.with_rank(example[info.name].ndim) for info in infos)
    dims: dict[str, list[Any]] = {
        info.name: [fix.get(str(d), d) if d is not None else f"{info.name}_{i}" for i, d in enumerate(info.dims)]
        for info in infos
    }
    if unstated:  # the new file says so
        stated = {sizes[0]: Dim(sizes[0], min=fewest) for sizes in dims.values() if isinstance(sizes[0], str)}
        dims = {name: [stated.get(d, d) for d in sizes] for name, sizes in dims.items()}
    for info in infos:
        for axis, dim in enumerate(info.dims):
            if dim in fix:
                array = example[info.name]
                example[info.name] = array.take([i % array.shape[axis] for i in range(fix[str(dim)])], axis)
    # with nothing fixed the file's own interface holds, and its rules with it
    report = save(
        net,
        to,
        example,
        dims=dims if fix or fewest > 1 else None,
        opset=opset,
        optimize=optimize,
        target=target,
        golden=not strip,
    )
    if strip:
        model = onnx.load(to, load_external_data=False)
        _strip(model)
        write_whole(to, lambda temporary: onnx.save(model, temporary))
    given = None if inputs is None or fix else example
    return report, prove(to, path if path.resolve() != to.resolve() else None, inputs=given)


def _with_following(fix: Mapping[str, int], rules: SizeRules) -> dict[str, int]:
    """With the sizes that follow from those that are fixed, and those that only they can follow from."""
    found = dict(fix)
    for name, expression in 2 * [each[1:] for each in rules.conditions if is_name_of(each)]:
        missing = {leaf for leaf in leaves(expression) if leaf not in found}
        if not missing:
            found.setdefault(name, evaluate(expression, found))
        elif name in found and len(missing) == 1:
            unknown = missing.pop()
            ends = solve(expression, unknown, found[name], found[name], found)
            if ends is not None and ends[0] == ends[1]:
                found[unknown] = ends[0]
    return found


def _strip(model: onnx.ModelProto) -> None:
    kept = [entry for entry in model.metadata_props if entry.key in (CONTRACT, DATA)]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    model.doc_string = ""
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        graph.doc_string = ""
        for node in graph.node:
            node.doc_string, node.name = "", ""
            graphs += [a.g for a in node.attribute if a.HasField("g")]
