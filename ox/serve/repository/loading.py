"""Loading one version, away from the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ox.errors import LoadError, OxError
from ox.graph.contract import TensorInfo
from ox.serve.batching.admission import Budget
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.document import nearest
from ox.serve.repository.layout import MODEL, Version, stamp_of
from ox.serve.repository.model import Model
from ox.serve.repository.other_formats import other_format
from ox.serve.repository.pbtxt import read_text
from ox.serve.repository.sequence_batching import tensors_of
from ox.serve.repository.setup import Running, agreed
from ox.serve.repository.tensor_config import reshapes_of
from ox.serve.runtime.dimension_memory import varying
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.probe import probe
from ox.serve.runtime.source import Source, read
from ox.serve.text.load import text_tensors
from ox.serve.text.model_file import TOKENIZER, model_file, text_folder

if TYPE_CHECKING:
    from ox.serve.generation.engine import GenerationEngine
    from ox.serve.protocol.text.text_model import TextModel


# Inputs and outputs of a model that generates texts, which Triton's configurations declare
TEXT_TENSORS = {"text_input", "stream", "sampling_parameters", "exclude_input_in_output", "text_output"}


class InterruptedLoad(Exception):
    """The files changed while they were read."""


class Cancelled(InterruptedLoad):
    """The load is cancelled: the model is not wanted, or its files changed."""


def load(
    name: str,
    number: int,
    version: Version,
    running: Running,
    limits: RequestLimits,
    budget: Budget,
    control: LoadControl | None = None,
) -> Model:
    """A model that is ready to answer; `control` ends the load from another thread.

    Raises:
        OxError: it cannot be loaded.
        Unsettled: it was not, because its files are still being written.
    """
    file = version.path / running.file if version.path.is_dir() else version.path
    if running.file == MODEL:
        file = model_file(version.path) or file
    try:
        if file.suffix != ".onnx" or not file.is_file():
            _check_format(version.path)
        model = _load(name, number, version, file, running, limits, budget, control or LoadControl())
        if model.generation is not None:
            model.text = _text_model(model, model.generation, text_folder(file))
    except Exception as error:
        if stamp_of(version) != version.stamp:
            raise InterruptedLoad from None
        _check_format(file)  # under the name of an ONNX file
        if isinstance(error, OxError):
            raise
        raise LoadError(f"{file} cannot be loaded", got=f"{type(error).__name__}: {error}"[:300]) from error
    if stamp_of(version) != version.stamp:
        raise InterruptedLoad
    return model


def _check_format(path: Path) -> None:
    """Raises LoadError if a file or the folder of a version holds a model in another format."""
    problem = other_format(path)
    if problem is not None:
        raise problem


def _load(
    name: str,
    number: int,
    version: Version,
    file: Path,
    running: Running,
    limits: RequestLimits,
    budget: Budget,
    control: LoadControl,
) -> Model:
    if running.memory_mib is not None:
        probe(file, running.options, running.memory_mib, control)
    folder = version.path.parent
    texts = {entry.labels: _labels(folder / entry.labels, folder) for entry in running.outputs if entry.labels}
    declared = {"input": running.inputs, "output": running.outputs}

    def check_tensors(kind: str, actual: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
        return agreed(name, kind, actual, declared[kind], texts)

    def tried(source: Source) -> None:
        if source.suspect and running.memory_mib is None:
            probe(file, running.options, None, control)

    control.enter("reading the file")
    source = read(file, _is_decoder(running))
    if source.decoder:
        tried(source)
        return _generates(source, name, number, running, limits, budget, control)
    sequence = None if running.sequence is None else partial(tensors_of, running, name, folder)
    reads_text = running.file == MODEL and (version.path / TOKENIZER).is_file()
    reads_text = reads_text and running.options.generation is not False
    model = Model(
        source,
        running.options,
        limits,
        name=name,
        version=str(number),
        check_tensors=check_tensors,
        reshapes=reshapes_of(running.inputs, running.outputs),
        sequence=sequence,
        text=partial(text_tensors, version.path, file) if reads_text else None,
        budget=budget,
        control=control,
        probe=tried,
        max_rows_source=running.max_rows_source,
    )
    _check_limited(model, running.limited)
    reshaped = reshapes_of(running.inputs, running.outputs)
    if not reshaped and model.text_tensors is None and model.padding is None and model.sequences is None:
        model.signature.add_defaulted(model.engine.defaulted, limits.strings)
    return model


def _is_decoder(running: Running) -> bool | None:
    """Whether a model generates texts, where its settings say so by `generation` or by declared tensors; else None."""
    generation = running.options.generation
    if isinstance(generation, bool):
        return generation
    declared = {entry.name for entry in (*running.inputs, *running.outputs)}
    return False if declared - TEXT_TENSORS and not generation else None


def _generates(
    source: Source,
    name: str,
    number: int,
    running: Running,
    limits: RequestLimits,
    budget: Budget,
    control: LoadControl,
) -> Model:
    from ox.serve.repository.generation_model import GenerationModel, check_settings

    declared = {entry.name for entry in (*running.inputs, *running.outputs)}
    if running.sequence is not None or declared - TEXT_TENSORS:
        raise LoadError(
            f"{name}: the configuration describes tensors of a model that generates texts",
            expected="no inputs, outputs and sequence_batching",
            hint="remove them, or generation = false in ox.toml, which serves the file's own tensors",
        )
    check_settings(name, running)
    return GenerationModel(
        source, running.options, limits, name=name, version=str(number), budget=budget, control=control
    )


def _text_model(model: Model, engine: GenerationEngine, folder: Path) -> TextModel:
    """What the dialects of texts need beside the engine; raises LoadError if its chat template is wrong."""
    from ox.serve.protocol.text.text_model import TextModel

    try:
        tool_parser = GenerationOptions.from_table(model.options.generation).tool_parser
        return TextModel(model.name, model.version, engine, folder, model.stages, tool_parser)
    except BaseException:
        engine.close(finish=False)
        raise


def _check_limited(model: Model, limited: Sequence[str]) -> None:
    """Raises LoadError if the model has none of the dimensions that its own settings limit."""
    infos = (*model.engine.inputs, *model.engine.outputs, *model.inputs)
    known = {dim for info in infos for dim in info.dims if isinstance(dim, str)} | {*varying(model.engine.inputs)}
    for name in limited:
        if name not in known:
            raise LoadError(
                f"{model.name}: max_dims limits '{name}', a dimension that the model does not have",
                expected=", ".join(sorted(known)) or "none: no dimension varies",
                got=name,
                hint=nearest(name, known),
            )


def _labels(path: Path, folder: Path) -> str:
    if not path.resolve().is_relative_to(folder.resolve()):
        got = f"a link to {path.resolve()}"
        raise LoadError(f"{path} leads out of its folder", got=got, hint="a copy instead of the link")
    return read_text(path)
