"""Recurrent layers: against their cells, sequence by sequence, and as ONNX files with open batch and time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence, unpack_sequence

KINDS = ["RNN", "LSTM", "GRU"]
SIZE, H = 3, 4


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def cell_of(layer: nn.RNNBase, suffix: str) -> Any:
    cell = getattr(nn, f"{type(layer).__name__}Cell")(SIZE, H)
    cell.load_state_dict({k: getattr(layer, k + suffix) for k in cell.state_dict()})
    return cell


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_its_cell_again_and_again(kind: str) -> None:
    layer = getattr(nn, kind)(SIZE, H, bidirectional=True)
    x = ox.tensor(array(5, 2, SIZE))
    y, _ = layer(x)
    for suffix, part, order in (("_l0", slice(0, H), range(5)), ("_l0_reverse", slice(H, 2 * H), range(4, -1, -1))):
        cell, state = cell_of(layer, suffix), None
        for t in order:
            state = cell(x[t], state)
            shown = state[0] if kind == "LSTM" else state
            assert np.allclose(shown.detach().numpy(), y[t, :, part].detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_do_not_see_each_other(kind: str) -> None:
    layer = getattr(nn, kind)(SIZE, H, num_layers=2, bidirectional=True)
    sequences = [ox.tensor(array(n, SIZE, seed=n)) for n in (2, 5, 3)]
    out, last = layer(pack_sequence(sequences, enforce_sorted=False))
    assert isinstance(out, PackedSequence)
    ends = last[0] if kind == "LSTM" else last
    for i, (x, y) in enumerate(zip(sequences, unpack_sequence(out), strict=True)):
        alone, end = layer(x)
        assert np.allclose(y.detach().numpy(), alone.detach().numpy(), atol=1e-6)
        end = end[0] if kind == "LSTM" else end
        assert np.allclose(ends[:, i].detach().numpy(), end.detach().numpy(), atol=1e-6)


def test_a_packed_sequence_keeps_the_order() -> None:
    sequences = [ox.tensor(array(n, 2, seed=n)) for n in (1, 3, 2)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices.tolist() == [1, 2, 0]
    padded, lengths = pad_packed_sequence(packed)
    assert lengths.tolist() == [1, 3, 2]
    assert np.array_equal(padded[:2, 2].numpy(), sequences[2].numpy())
    with pytest.raises(ArgumentError, match="not in descending order"):
        pack_sequence(sequences)


@rows("kind", KINDS)
@rows("batch_first", [False, True])
def test_a_layer_is_one_operator_of_the_file(kind: str, batch_first: bool) -> None:
    layer = getattr(nn, kind)(SIZE, H, bidirectional=True, batch_first=batch_first)
    x = ox.tensor(array(2, 3, SIZE))
    with ox.no_grad():
        graph = record(lambda x: layer(x)[0], {"x": x}, dims={"x": ["a", "b", SIZE]})
        assert [n.op_type for n in graph.nodes].count(kind) == 1
        session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
        for a, b in ((2, 3), (6, 1), (1, 7)):
            other = array(a, b, SIZE, seed=a)
            (got,) = session.run(None, {"x": other})
            assert np.allclose(got, layer(ox.tensor(other))[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_records_for_any_length(kind: str) -> None:
    layer = getattr(nn, kind)(SIZE, H, num_layers=2)
    names = [name for name, _ in layer.named_parameters()]

    def step(x: Any) -> dict[str, Any]:
        layer.zero_grad()
        y, _ = layer(x)
        (y * y).sum().backward()
        return {f"d_{name}": p.grad for name, p in layer.named_parameters()}

    x = ox.tensor(array(3, 2, SIZE))
    graph = record(step, {"x": x}, dims={"x": ["time", "batch", SIZE]}, restore=list(layer.parameters()))
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
    for t, n in ((3, 2), (7, 1), (1, 4)):
        other = array(t, n, SIZE, seed=t)
        expected = step(ox.tensor(other))
        got = session.run([f"d_{name}" for name in names], {"x": other})
        for name, g in zip(names, got, strict=True):
            assert np.allclose(g, expected[f"d_{name}"].numpy(), atol=1e-4), name


def test_projected_states_record_too() -> None:
    layer = nn.LSTM(SIZE, H, proj_size=2, bidirectional=True)
    x = ox.tensor(array(3, 2, SIZE))
    with ox.no_grad():
        graph = record(lambda x: layer(x)[0], {"x": x}, dims={"x": ["time", "batch", SIZE]})
        session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
        other = array(5, 1, SIZE)
        (got,) = session.run(None, {"x": other})
        assert np.allclose(got, layer(ox.tensor(other))[0].numpy(), atol=1e-5)


def test_gradients_stop_at_a_sequences_end() -> None:
    layer = nn.GRU(SIZE, H, bidirectional=True)
    x = ox.tensor(array(4, 2, SIZE), requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, [4, 2])
    out, last = layer(packed)
    (out.data.sum() + last.sum()).backward()
    assert not x.grad[2:, 1].numpy().any()
    assert x.grad[:2, 1].numpy().all()


def test_dropout_lies_between_layers_only() -> None:
    x = ox.tensor(array(3, 2, SIZE))
    one, two = nn.LSTM(SIZE, H, dropout=0.5), nn.LSTM(SIZE, H, num_layers=2, dropout=0.5)
    assert np.array_equal(one(x)[0].detach().numpy(), one.eval()(x)[0].detach().numpy())
    assert not np.array_equal(two(x)[0].detach().numpy(), two.eval()(x)[0].detach().numpy())


def test_refusals_say_what_was_expected() -> None:
    layer = nn.LSTM(SIZE, H)
    with pytest.raises(ShapeError, match="input_size 3"):
        layer(ox.tensor(array(2, 2, 5)))
    with pytest.raises(ShapeError, match=r"h_0 \[1, 2, 4\]"):
        layer(ox.tensor(array(2, 2, 3)), (ox.zeros(1, 2, 5), ox.zeros(1, 2, 4)))
    with pytest.raises(ArgumentError, match="pair"):
        layer(ox.tensor(array(2, 2, 3)), ox.zeros(1, 2, 4))
    with pytest.raises(ArgumentError, match="beyond"):
        nn.utils.rnn.pack_padded_sequence(ox.tensor(array(2, 2, 3)), [3, 2])
    with pytest.raises(ArgumentError, match="sequence length outside"):
        x, w, r = array(2, 1, 3), array(1, H, 3), array(1, H, H)
        ox.ops.RNN(x, w, r, None, np.array([3], np.int32), hidden_size=H)
    with pytest.raises(ArgumentError, match="direction"):
        ox.ops.RNN(x, w, r, hidden_size=H, direction="sideways")
    with pytest.raises(ArgumentError, match="activations"):
        ox.ops.RNN(x, w, r, hidden_size=H, activations=["Sine"])
    with pytest.raises(ShapeError, match=r"R \[1, 4, 4\]"):
        ox.ops.RNN(x, w, w, hidden_size=H)
