"""Files for inference have at most as many nodes as PyTorch's exporter writes, and are compared as they should be."""

from __future__ import annotations

from pathlib import Path

import bench_export_nodes as bench
import pytest

import ox

# nodes of PyTorch 2.13's files, optimized by onnxscript 0.7.2: with a dynamic batch, and with all sizes dynamic that
# can be. PyTorch exports two of them for a fixed length alone.
TORCH = {
    "ResNet-18": (48, 48), "MobileNet": (14, 14), "EfficientNet": (20, 20), "ConvNeXt": (15, 15), "DenseNet": (20, 20),
    "ShuffleNet": (23, 38), "ViT": (104, 104), "Swin": (48, 48), "Mixer": (21, 21), "Diffusion": (45, 45),
    "Detector": (17, 17), "Style": (12, 12), "SuperResolution": (7, 7), "Critic": (6, 6), "Paste": (62, 62),
    "Llama": (79, 91), "BERT": (41, 48), "Encoder": (96, 105), "Translator": (146, 161),
    "Decoder with cache": (41, 41), "Tagger": (18, 18), "Forecaster": (31, None), "Elman": (157, None),
    "WaveNet": (27, 27), "Conformer": (57, 66), "GNN": (13, 13), "VAE": (15, 15), "NeRF": (17, 17), "DLRM": (25, 25),
}  # fmt: skip
MODELS = bench.zoo(ox)


def test_every_model_is_named() -> None:
    assert MODELS.keys() == TORCH.keys()


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("every_size", [False, True], ids=["batch", "all sizes"])
@pytest.mark.parametrize("name", MODELS)
def test_at_most_as_many_nodes(name: str, every_size: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export proves by itself that the file computes what the model does."""
    monkeypatch.setattr(bench, "KINDS", ("ox",))
    monkeypatch.setattr(bench, "ALL_SIZES", every_size)
    limit = TORCH[name][every_size]
    if limit is None:
        pytest.skip("PyTorch does not export it with all sizes dynamic")
    found = bench.export(name, MODELS[name], None, tmp_path)["ox"]
    assert isinstance(found, int) and found <= limit


def test_files_that_differ_are_an_error(tmp_path: Path) -> None:
    page = MODELS["NeRF"]
    found = bench.export("NeRF", page, None, tmp_path)
    assert set(found) == {"ox", "ox as written"} and all(isinstance(count, int) for count in found.values())
    bench.check_equal("NeRF", page, tmp_path)
    ox.manual_seed(1)
    bench.write_ox(page.make().eval(), page, tmp_path / "NeRF.ox as written.onnx", None)
    with pytest.raises(AssertionError, match="ox as written differs from ox"):
        bench.check_equal("NeRF", page, tmp_path)


def test_an_exporter_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("no such operator\nfurther lines")

    monkeypatch.setattr(bench, "write_ox", fail)
    assert bench.export("NeRF", MODELS["NeRF"], None, tmp_path)["ox"] == "ValueError: no such operator"


def test_the_table() -> None:
    counts = {"a": {"ox": 5, "ox as written": 8, "torch": 10}, "b": {"ox": 3, "ox as written": 3, "torch": "E: no"}}
    text = bench.table(counts, {"a": {"ox": [1.0, 3.0, 2.0], "torch": [4.0]}})
    assert "| a | 5 | 8 | 10 | 0.50 | 2 | – | 4 | 0.50 |" in text and "| b | 3 | 3 | – | – | – | – | – | – |" in text
    assert "geometric mean of nodes: 0.500" in text and "not exported: b, torch: E: no" in text
