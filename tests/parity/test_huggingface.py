"""Checkpoints as Hugging Face's GPT-2 and BERT write them: made here with PyTorch and safetensors, loaded into ox.

The reference networks are written out below in plain PyTorch over a dict of weights, with names, shapes and layouts
as the `transformers` library has them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sides import torch

import ox
import ox_models.bert as bert
import ox_models.gpt2 as gpt2
from ox import nn

T = torch.nn.functional
GPT = {"vocab_size": 61, "n_positions": 24, "n_embd": 32, "n_layer": 3, "n_head": 4, "layer_norm_epsilon": 1e-5}
BERT = {
    "vocab_size": 53, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 20, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}  # fmt: skip
State = dict[str, torch.Tensor]


def drawn(shapes: dict[str, tuple[int, ...]]) -> State:
    """Weights in the range of trained ones: those of norms about 1, others about 0."""
    generator = torch.Generator().manual_seed(0)
    norms = (".ln_1.weight", ".ln_2.weight", "ln_f.weight", "LayerNorm.weight")
    return {n: 0.2 * torch.randn(*s, generator=generator) + n.endswith(norms) for n, s in shapes.items()}


def gpt2_state() -> State:
    e, shapes = GPT["n_embd"], {}
    shapes["wte.weight"], shapes["wpe.weight"] = (GPT["vocab_size"], e), (GPT["n_positions"], e)
    for i in range(int(GPT["n_layer"])):
        for name, shape in {
            "ln_1.weight": (e,), "ln_1.bias": (e,), "attn.c_attn.weight": (e, 3 * e), "attn.c_attn.bias": (3 * e,),
            "attn.c_proj.weight": (e, e), "attn.c_proj.bias": (e,), "ln_2.weight": (e,), "ln_2.bias": (e,),
            "mlp.c_fc.weight": (e, 4 * e), "mlp.c_fc.bias": (4 * e,), "mlp.c_proj.weight": (4 * e, e),
            "mlp.c_proj.bias": (e,),
        }.items():  # fmt: skip
            shapes[f"h.{i}.{name}"] = shape
    shapes["ln_f.weight"], shapes["ln_f.bias"] = (e,), (e,)
    return drawn(shapes)  # type: ignore[arg-type]


def gpt2_logits(w: State, ids: torch.Tensor) -> torch.Tensor:
    e, heads, length = int(GPT["n_embd"]), int(GPT["n_head"]), ids.shape[1]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return T.layer_norm(x, (e,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][torch.arange(length)]
    future = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    for i in range(int(GPT["n_layer"])):
        q, k, v = dense(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(e, 2)
        q, k, v = (t.view(*t.shape[:2], heads, e // heads).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(e // heads)).masked_fill(future, -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + dense(mixed, f"h.{i}.attn.c_proj")
        inner = T.gelu(dense(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + dense(inner, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def bert_state(labels: int = 3) -> State:
    e, inner = int(BERT["hidden_size"]), int(BERT["intermediate_size"])
    linear: dict[str, tuple[int, int]] = {}
    norms = ["embeddings.LayerNorm"]
    for i in range(int(BERT["num_hidden_layers"])):
        layer = f"encoder.layer.{i}"
        linear |= {f"{layer}.attention.self.{part}": (e, e) for part in ("query", "key", "value")}
        linear |= {f"{layer}.attention.output.dense": (e, e), f"{layer}.intermediate.dense": (inner, e)}
        linear |= {f"{layer}.output.dense": (e, inner)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    linear["pooler.dense"] = (e, e)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (int(BERT["vocab_size"]), e),
        "embeddings.position_embeddings.weight": (int(BERT["max_position_embeddings"]), e),
        "embeddings.token_type_embeddings.weight": (2, e),
    }
    for name, shape in linear.items():
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (e,)
    shapes = {f"bert.{name}": shape for name, shape in shapes.items()}
    shapes["classifier.weight"], shapes["classifier.bias"] = (labels, e), (labels,)
    return drawn(shapes)


def bert_logits(w: State, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor | None = None) -> torch.Tensor:
    e, heads = int(BERT["hidden_size"]), int(BERT["num_attention_heads"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return T.layer_norm(x, (e,), w[f"{name}.LayerNorm.weight"], w[f"{name}.LayerNorm.bias"], 1e-12)

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        return T.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    kinds = torch.zeros_like(ids) if kinds is None else kinds
    x = w["bert.embeddings.word_embeddings.weight"][ids] + w["bert.embeddings.token_type_embeddings.weight"][kinds]
    x = norm(x + w["bert.embeddings.position_embeddings.weight"][: ids.shape[1]], "bert.embeddings")
    for i in range(int(BERT["num_hidden_layers"])):
        layer = f"bert.encoder.layer.{i}"
        parts = [dense(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value")]
        q, k, v = (t.view(*t.shape[:2], heads, e // heads).transpose(1, 2) for t in parts)
        scores = q @ k.transpose(-1, -2) / math.sqrt(e // heads)
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = norm(dense(mixed, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output")
        inner = T.gelu(dense(x, f"{layer}.intermediate.dense"))
        x = norm(dense(inner, f"{layer}.output.dense") + x, f"{layer}.output")
    return dense(torch.tanh(dense(x[:, 0], "bert.pooler.dense")), "classifier")


def write(folder: Path, state: State, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    from safetensors.torch import save_file

    save_file({k: v.clone().contiguous() for k, v in state.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


GPT_IDS = np.random.default_rng(1).integers(0, 61, (3, 17))
BERT_IDS = np.random.default_rng(2).integers(0, 53, (4, 11))
BERT_MASK = (np.arange(11) < np.array([[11], [5], [8], [1]])).astype(np.int64)


def gpt2_forms() -> dict[str, State]:
    bare = gpt2_state()
    triangle = torch.tril(torch.ones(24, 24)).view(1, 1, 24, 24)
    old = {f"h.{i}.attn.{n}": t for i in range(3) for n, t in (("bias", triangle), ("masked_bias", torch.tensor(-1e4)))}
    whole = {f"transformer.{k}": v for k, v in bare.items()}
    return {
        "bare": bare,
        "with its triangles": bare | old,
        "with a head": whole | {"lm_head.weight": bare["wte.weight"].clone()},
        "head tied": whole,
    }


@pytest.mark.parametrize("form", gpt2_forms())
def test_gpt2(tmp_path: Path, form: str) -> None:
    folder = write(tmp_path / "gpt2", gpt2_forms()[form], GPT | {"model_type": "gpt2", "resid_pdrop": 0.1})
    expected = gpt2_logits(gpt2_state(), torch.from_numpy(GPT_IDS)).numpy()
    for path in (folder, folder / "model.safetensors"):
        model = gpt2.from_pretrained(path).eval()
        with ox.no_grad():
            assert np.abs(model(ox.from_numpy(GPT_IDS)).numpy() - expected).max() < 1e-4
    assert model.lm_head.weight is model.transformer.wte.weight


def test_gpt2_by_hand(tmp_path: Path) -> None:
    """The plain way: ox.load, load_state_dict; the names of the bare network are those of GPT2Model."""
    folder = write(tmp_path / "gpt2", gpt2_state(), GPT)
    model = gpt2.GPT2Model(gpt2.GPT2Config(61, 24, 32, 3, 4)).eval()
    assert model.load_state_dict(ox.load(folder / "model.safetensors")) == ([], [])
    with ox.no_grad():
        logits = model(ox.from_numpy(GPT_IDS)) @ model.wte.weight.T
    assert np.abs(logits.numpy() - gpt2_logits(gpt2_state(), torch.from_numpy(GPT_IDS)).numpy()).max() < 1e-4


@pytest.mark.parametrize("legacy", [False, True])
def test_gpt2_as_torch_save_writes_it(tmp_path: Path, legacy: bool) -> None:
    folder = write(tmp_path / "gpt2", gpt2_state(), GPT)
    expected = gpt2.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(gpt2_state(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    for path in (folder, folder / "pytorch_model.bin"):
        for (name, p), q in zip(gpt2.from_pretrained(path).named_parameters(), expected.parameters(), strict=True):
            assert p.array.tobytes() == q.array.tobytes(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_other_types(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {k: v.to(dtype) for k, v in gpt2_state().items()}
    model = gpt2.from_pretrained(write(tmp_path / "gpt2", state, GPT)).eval()
    assert {p.dtype for p in model.parameters()} == {ox.float32}
    expected = gpt2_logits({k: v.float() for k, v in state.items()}, torch.from_numpy(GPT_IDS)).numpy()
    with ox.no_grad():
        assert np.abs(model(ox.from_numpy(GPT_IDS)).numpy() - expected).max() < 1e-4


def test_gpt2_learns_on_as_in_pytorch(tmp_path: Path) -> None:
    """One step of SGD moves every weight as PyTorch's does; the table of tokens by what reading and writing ask."""
    folder = write(tmp_path / "gpt2", gpt2_state(), GPT | dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0))
    model = gpt2.from_pretrained(folder)
    ids = ox.from_numpy(GPT_IDS)
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    loss.backward()
    ox.optim.SGD(model.parameters(), lr=0.1).step()

    state = {k: v.requires_grad_() for k, v in gpt2_state().items()}
    theirs = torch.from_numpy(GPT_IDS)
    other = T.cross_entropy(gpt2_logits(state, theirs[:, :-1]).transpose(1, 2), theirs[:, 1:])
    other.backward()
    torch.optim.SGD(state.values(), lr=0.1).step()
    assert abs(loss.item() - other.item()) < 1e-5
    mine = model.transformer.state_dict()
    assert mine.keys() == state.keys()
    for name, value in state.items():
        assert np.abs(mine[name].numpy() - value.detach().numpy()).max() < 1e-5, name


def bert_forms() -> dict[str, State]:
    whole = bert_state()
    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
           for k, v in whole.items()}  # fmt: skip
    extra = {"bert.embeddings.position_ids": torch.arange(20)[None], "cls.predictions.bias": torch.zeros(53)}
    return {"whole": whole, "old names": old, "with heads of other tasks": whole | extra}


@pytest.mark.parametrize("form", bert_forms())
def test_bert(tmp_path: Path, form: str) -> None:
    folder = write(tmp_path / "bert", bert_forms()[form], BERT | {"model_type": "bert", "hidden_act": "gelu"})
    model, fresh = bert.from_pretrained(folder)
    assert fresh == []
    ids, mask = torch.from_numpy(BERT_IDS), torch.from_numpy(BERT_MASK)
    kinds = torch.from_numpy((np.arange(11) > 6).astype(np.int64)[None].repeat(4, 0))
    model.eval()
    with ox.no_grad():
        logits = model(ox.from_numpy(BERT_IDS), ox.from_numpy(BERT_MASK)).numpy()
        segmented = model(ox.from_numpy(BERT_IDS), ox.from_numpy(BERT_MASK), ox.from_numpy(kinds.numpy())).numpy()
    assert np.abs(logits - bert_logits(bert_state(), ids, mask).numpy()).max() < 1e-4
    assert np.abs(segmented - bert_logits(bert_state(), ids, mask, kinds).numpy()).max() < 1e-4
    assert np.abs(segmented - logits).max() > 1e-3


def test_bert_without_a_head_begins_a_new_one(tmp_path: Path) -> None:
    """The bare network, as most checkpoints have it, and a classifier of another number of classes."""
    bare = {k.removeprefix("bert."): v for k, v in bert_state().items() if not k.startswith("classifier.")}
    for state, labels in ((bare, 5), (bert_state(), 5)):
        model, fresh = bert.from_pretrained(write(tmp_path / "bert", state, BERT), num_labels=labels)
        assert fresh == ["classifier.weight", "classifier.bias"]
        assert model.classifier.weight.shape == (5, 32)
        own = model.bert.pooler.dense.weight.detach().numpy()
        assert np.array_equal(own, bert_state()["bert.pooler.dense.weight"].numpy())


def test_bert_learns_on_as_in_pytorch(tmp_path: Path) -> None:
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model, _ = bert.from_pretrained(write(tmp_path / "bert", bert_state(), BERT | quiet))
    answers = np.array([0, 2, 1, 2])
    loss = nn.functional.cross_entropy(model(ox.from_numpy(BERT_IDS), ox.from_numpy(BERT_MASK)), ox.from_numpy(answers))
    loss.backward()
    ox.optim.SGD(model.parameters(), lr=0.1).step()
    state = {k: v.requires_grad_() for k, v in bert_state().items()}
    logits = bert_logits(state, torch.from_numpy(BERT_IDS), torch.from_numpy(BERT_MASK))
    T.cross_entropy(logits, torch.from_numpy(answers)).backward()
    mine = model.state_dict()
    assert mine.keys() == state.keys()
    # PyTorch's table has no row of padding here, so that row moves there; BertEmbeddings holds it still, as HF's does
    table = "bert.embeddings.word_embeddings.weight"
    state[table].grad[0] = 0  # type: ignore[index]
    torch.optim.SGD(state.values(), lr=0.1).step()
    for name, value in state.items():
        assert np.abs(mine[name].numpy() - value.detach().numpy()).max() < 1e-5, name


@pytest.mark.parametrize("which", ["gpt2", "bert"])
def test_exported_it_gives_pytorchs_numbers(tmp_path: Path, which: str) -> None:
    """The proof, and the file's own numbers beside the reference."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if which == "gpt2":
        inputs: tuple[Any, ...] = (GPT_IDS,)
        model: nn.Module = gpt2.from_pretrained(write(tmp_path / "m", gpt2_state(), GPT))
        expected = gpt2_logits(gpt2_state(), torch.from_numpy(GPT_IDS))
    else:
        inputs = (BERT_IDS, BERT_MASK)
        model, _ = bert.from_pretrained(write(tmp_path / "m", bert_state(), BERT))
        expected = bert_logits(bert_state(), torch.from_numpy(BERT_IDS), torch.from_numpy(BERT_MASK))
    report = ox.export.save(model, tmp_path / "x.onnx", tuple(map(ox.from_numpy, inputs)))
    assert report.rows
    session = onnxruntime.InferenceSession(tmp_path / "x.onnx", providers=["CPUExecutionProvider"])
    fed = {info.name: array for info, array in zip(session.get_inputs(), inputs, strict=True)}
    assert np.abs(session.run(None, fed)[0] - expected.numpy()).max() < 1e-4
