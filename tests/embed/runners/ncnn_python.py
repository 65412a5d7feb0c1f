"""ncnn, through pnnx, which converts for the sizes of the inputs; in float32."""

import subprocess
from pathlib import Path

import ncnn
import numpy as np
from runner import Feed, Loaded, main


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    sizes = {len(array) for array in feed.values()}
    count = sizes.pop() if len(sizes) == 1 else None  # its tensors have no batch: one sample after the other
    files = []  # for the sizes: what it runs the file on is random
    for i, array in enumerate(feed.values()):
        files.append(f"input_{i}.npy")
        np.save(files[-1], array if count is None else array[:1])
    program = Path(ncnn.__file__).parents[1] / "pnnx" / "pnnx"  # without its package, which imports PyTorch
    words = [str(program), path, f"input={','.join(files)}", "fp16=0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    parameters = Path(path).with_suffix(".ncnn.param")
    if done.returncode or not parameters.is_file():
        raise RuntimeError(f"pnnx: {((done.stdout + done.stderr).strip() or 'no file').splitlines()[-1]}")
    layers = [line.split()[0] for line in parameters.read_text().splitlines()[2:]]
    known = {name for name in layers if ncnn.layer_to_index(name) >= 0} if hasattr(ncnn, "layer_to_index") else layers
    if unknown := sorted(set(layers) - set(known)):
        raise RuntimeError(f"pnnx leaves what ncnn has no layer for: {', '.join(unknown)}")
    net = ncnn.Net()
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    if net.load_param(str(parameters)) or net.load_model(str(parameters.with_suffix(".bin"))):
        raise RuntimeError("ncnn cannot load what pnnx wrote")

    def once(arrays: list[np.ndarray]) -> list[np.ndarray]:
        extractor = net.create_extractor()
        for name, array in zip(net.input_names(), arrays, strict=True):
            whole = array if array.dtype.kind == "f" else array.astype(np.int32)
            extractor.input(name, ncnn.Mat(np.ascontiguousarray(whole)))
        results = []
        for name in sorted(net.output_names()):  # out0, out1, ...
            code, result = extractor.extract(name)
            if code:
                raise RuntimeError(f"ncnn: extract gives {code}")
            results.append(np.array(result))
        return results

    def run(feed: Feed) -> list[np.ndarray]:
        if count is None:
            return once(list(feed.values()))
        rows = [once([array[i] for array in feed.values()]) for i in range(count)]
        return [np.stack(each) for each in zip(*rows, strict=True)]

    return run


main(ncnn.__version__, load)
