"""`ox quantize` beside float32: accuracy on the validation data, size, and latency in ONNX Runtime.

    python benchmarks/bench_quantize.py                                  # digits, fashion_cnn, resnet18, verses
    EPOCHS=1 SCHEMES="int8 int4" python benchmarks/bench_quantize.py digits

Each recipe is trained (by its own number of epochs, or EPOCHS) and exported in a temporary folder; one whose data are
not on this machine is left out, with the reason. A latency is a ratio: sessions take turns in one process, and the
median of ROUNDS (5) measurements is given, each of them a median itself, with the smallest and the largest. Take the
figures on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RECIPES = ("digits", "fashion_cnn", "resnet18", "verses")
SCHEMES = os.environ.get("SCHEMES", "float16 bfloat16 int8-dynamic int8 int4").split()
ROUNDS = int(os.environ.get("ROUNDS", "5"))
BATCHES = (1, 32)
SAMPLES = 256  # of the calibration


def exported(recipe: str, folder: Path) -> Path:
    """A trained model of a recipe as a file. Raises SystemExit where a command fails; it has printed why."""
    from ox_cli.main import main

    os.chdir(folder)
    epochs = ["--epochs", os.environ["EPOCHS"]] if "EPOCHS" in os.environ else []
    path = folder / f"{recipe}.onnx"
    for arguments in (["train", recipe, *epochs], ["export", path.name, "--optimize", "inference"]):
        if code := main(arguments):
            raise SystemExit(code)
    return path


def latency(files: tuple[Path, Path], feed: dict[str, Any]) -> str:
    """How long the second file takes, divided by the first."""
    import onnx

    from ox.export.quantization.sessions import open_session, seconds

    sessions = [open_session(onnx.load(path), str(path)) for path in files]
    ratios = []
    for _ in range(ROUNDS):
        before, after = seconds(sessions, feed)
        ratios.append(after / before)
    return f"{statistics.median(ratios):5.2f}× ({min(ratios):.2f} to {max(ratios):.2f})"


def measure(recipe: str, folder: Path) -> None:
    from ox import export
    from ox.errors import OxError
    from ox_cli.model_source import open_source
    from ox_cli.quantize import calibration_of, evaluation_of

    path = exported(recipe, folder)
    source = open_source(path)
    page = source.require_recipe()
    data = calibration_of(source, page, SAMPLES)
    evaluate = evaluation_of(source, page, [], None)
    print(f"{recipe}: {path.stat().st_size:,} bytes")
    for scheme in SCHEMES:
        small = folder / f"{recipe}.{scheme}.onnx"
        try:
            report = export.quantize(path, small, scheme, calibration=data, evaluate=evaluate)
        except OxError as error:
            print(f"  {scheme:13} {error.what}: {error.got}")
            continue
        before, after = report.accuracy or (float("nan"), float("nan"))
        times = [f"batch {n} {latency((path, small), {k: x[:n] for k, x in data.items()})}" for n in BATCHES]
        accuracy = f"accuracy {100 * before:.2f} % → {100 * after:.2f} %"
        print(f"  {scheme:13} {accuracy}   size {report.size_ratio:.2f}×   {'   '.join(times)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=RECIPES, help="names of recipes that classify")
    for name in parser.parse_args().recipes:
        with TemporaryDirectory() as place:
            try:
                measure(name, Path(place))
            except SystemExit:
                print(f"{name} is left out", file=sys.stderr)
