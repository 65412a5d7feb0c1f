"""Decoders of other exporters in the form of files of Optimum; with real folders: tests/serve/generation."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import ModelProto, TensorProto, helper

from ox.errors import LoadError
from ox.serve.runtime.standard_form import standardize, take_branch_with_past


def model(names: dict[str, str], *nodes: Any) -> ModelProto:
    """A graph that takes and gives tensors by these names."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names.values()]
    made = nodes or [helper.make_node("Identity", [name], [other]) for name, other in names.items()]
    return helper.make_model(helper.make_graph(made, "g", inputs, outputs))


def names_of(changed: ModelProto) -> list[str]:
    return [info.name for info in (*changed.graph.input, *changed.graph.output)]


def test_names_with_layers() -> None:
    found = model({"k3": "new3k", "ids": "scores"})
    names = {"past_key_values.%d.key": "k%d", "present.%d.key": "new%dk", "input_ids": "ids", "logits": "scores"}
    assert standardize(found, names).changed
    assert names_of(found) == ["past_key_values.3.key", "input_ids", "present.3.key", "logits"]
    assert [list(node.input) for node in found.graph.node] == [["past_key_values.3.key"], ["input_ids"]]


def test_what_is_standard_stays() -> None:
    found = model({"input_ids": "logits"})
    before = found.SerializeToString()
    assert not standardize(found, {"input_ids": "input_ids", "logits": "logits"}).changed
    take_branch_with_past(found)
    assert found.SerializeToString() == before


def test_two_with_one_name() -> None:
    with pytest.raises(LoadError, match="two inputs or outputs of a decoder the same name") as caught:
        standardize(model({"ids": "logits", "input_ids": "other"}), {"input_ids": "ids"})
    assert caught.value.got == "input_ids"


@pytest.mark.parametrize("attributes, longest", [({}, 8), ({"local_window_size": 8}, None)])
def test_a_window_is_kept_by_the_graph_or_by_the_length(attributes: dict[str, int], longest: int | None) -> None:
    attention = helper.make_node("GroupQueryAttention", ["x"], ["y"], domain="com.microsoft", **attributes)
    assert standardize(model({"x": "y"}, attention), {}, window=8).longest == longest
