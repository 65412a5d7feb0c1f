"""Texts of devices, and which GPU each instance gets."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.devices.machine import Driver
from ox.errors import ArgumentError, DeviceError
from ox.serve import ModelConfig
from ox.serve.config.placement import Placement
from ox.serve.runtime.cuda_provider import check_numbers
from ox_cli.main import main


@rows(
    ("text", "kind", "numbers", "instances"),
    [
        ("cpu", "cpu", (), [0, 0, 0]),
        ("auto", "auto", (), [0, 0, 0]),
        ("cuda", "cuda", (), [0, 0, 0]),
        ("cuda:1", "cuda", (1,), [1, 1, 1]),
        ("cuda:0,cuda:12", "cuda", (0, 12), [0, 12, 0]),
        ("auto:1,auto:0,auto:1", "auto", (1, 0, 1), [1, 0, 1]),
        ("tensorrt", "tensorrt", (), [0, 0, 0]),
        ("tensorrt:1,tensorrt:0", "tensorrt", (1, 0), [1, 0, 1]),
    ],
)
def test_what_is_read(text: str, kind: str, numbers: tuple[int, ...], instances: list[int]) -> None:
    placement = Placement.parse(text)
    assert placement == Placement(kind, numbers) and str(placement) == text
    assert [placement.number(index) for index in range(3)] == instances
    assert ModelConfig(text).device == text


WRONG = ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "cuda:01", "cuda:0,", "cuda:0,cpu", "cuda:0,auto:1", 1]


@rows("text", [*WRONG, "tensorrt:", "cuda:0,tensorrt:0"])
def test_what_is_refused(text: Any) -> None:
    with pytest.raises(ArgumentError, match="unknown device") as caught:
        ModelConfig(text)
    assert str(caught.value.expected).startswith("cpu, cuda, cuda:1") and caught.value.got == str(text)


def test_shares() -> None:
    assert Placement.of_counts("cuda", {0: 2, 1: 2}) == Placement("cuda", (0, 1))
    assert Placement.of_counts("cuda", {3: 2, 1: 1}) == Placement("cuda", (3, 3, 1))


def test_a_number_that_does_not_exist() -> None:
    driver = Driver((13, 0), ("H100", "A100"))
    check_numbers(Placement.parse("cuda:1,cuda:0"), driver)
    with pytest.raises(DeviceError, match="there is no cuda:7") as caught:
        check_numbers(Placement.parse("cuda:1,cuda:7"), driver)
    assert caught.value.expected == "cuda:0 (H100), cuda:1 (A100)" and caught.value.got == "cuda:7"
    assert "CUDA_VISIBLE_DEVICES" in str(caught.value.hint)


def test_graphs_are_captured_on_one_gpu() -> None:
    with pytest.raises(ArgumentError, match="enable_cuda_graph has one instance"):
        ModelConfig("cuda:0,cuda:1", cuda={"enable_cuda_graph": True})
    assert ModelConfig("cuda:1", cuda={"enable_cuda_graph": True}).device == "cuda:1"
    with pytest.raises(ArgumentError, match="TensorRT's runs are not captured"):
        ModelConfig("tensorrt", cuda={"enable_cuda_graph": True})


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "m.onnx", "--device", "cuda:first"]) != 0
    assert "unknown device" in capsys.readouterr().err
