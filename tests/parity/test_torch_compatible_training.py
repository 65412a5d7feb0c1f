"""Under `ox.random.torch_compatible(True)` whole models begin with PyTorch's weights, loaders give its batches in its
order, and training with dropout gives its losses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with ox.random.torch_compatible(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def both(build: Callable[[Any], Any], seed: int = 3) -> tuple[Any, Any]:
    made = []
    for T in (ox, torch):
        T.manual_seed(seed)
        made.append(build(T))
    np.testing.assert_array_equal(ox.get_rng_state().numpy(), torch.get_rng_state().numpy())
    return made[0], made[1]


# -- models --------------------------------------------------------------------------------------------------------


def mlp(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4))


def conv_net(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.3),
        nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 4),
    )  # fmt: skip


def lstm(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = T.nn.LSTM(3, 8, 2, batch_first=True, dropout=0.3, bidirectional=True)
            self.head = T.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x.reshape(-1, 4, 3))[0][:, -1])

    return Model()


def gru(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = T.nn.GRU(3, 8, 2, dropout=0.5)
            self.drop = T.nn.Dropout(0.1)
            self.head = T.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.drop(self.rnn(x.reshape(-1, 4, 3).transpose(0, 1))[0][-1]))

    return Model()


def transformer(batch_first: bool, norm_first: bool = False) -> Callable[[Any], Any]:
    def build(T: Any) -> Any:
        class Model(T.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.embed = T.nn.Linear(3, 8)
                layer = T.nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=batch_first, norm_first=norm_first)
                self.encoder = T.nn.TransformerEncoder(layer, 2)
                self.head = T.nn.Linear(8, 4)

            def forward(self, x: Any) -> Any:
                x = x.reshape(-1, 4, 3)
                x = self.embed(x if batch_first else x.transpose(0, 1))
                return self.head(self.encoder(x).mean(1 if batch_first else 0))

        return Model()

    return build


def seq2seq(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = T.nn.Linear(3, 8)
            self.model = T.nn.Transformer(8, 2, 1, 1, 16, 0.2, batch_first=True)
            self.head = T.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            x = self.embed(x.reshape(-1, 4, 3))
            return self.head(self.model(x, x)[:, -1])

    return Model()


def resnet(T: Any) -> Any:
    nn = T.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

        def forward(self, x: Any) -> Any:
            y = T.relu(self.bn1(self.conv1(x)))
            return T.relu(x + self.bn2(self.conv2(y)))

    model = nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 8, 1), Block(8), nn.Dropout2d(0.2), Block(8), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def attention(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = T.nn.Linear(3, 8)
            self.position = T.nn.Parameter(T.randn(1, 4, 8) * 0.02)
            self.token = T.nn.Parameter(T.nn.init.trunc_normal_(T.empty(1, 1, 8), std=0.02))
            self.attend = T.nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
            self.drop = T.nn.Dropout(0.1)
            self.head = T.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            x = self.embed(x.reshape(-1, 4, 3)) + self.position + self.token
            return self.head(self.drop(x + self.attend(x, x, x)[0]).mean(1))

    return Model()


def own_attention(T: Any) -> Any:
    """With heads moved by transpose, and dropout on what lies otherwise in memory than it is shaped."""

    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.head = T.nn.Linear(3, 24), T.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            n = x.shape[0]
            q, k, v = self.qkv(x.reshape(-1, 4, 3)).reshape(n, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
            scores = T.softmax(q @ k.transpose(-2, -1) / 2, -1)
            y = T.nn.functional.dropout(scores, 0.2, self.training) @ v
            y = T.nn.functional.dropout(y.transpose(1, 2), 0.2, self.training)
            return self.head(y.reshape(n, 4, 8).mean(1))

    return Model()


def autoencoder(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.mean, self.log_var = T.nn.Linear(12, 16), T.nn.Linear(16, 4), T.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            h = T.tanh(self.encode(x))
            std = T.exp(0.5 * self.log_var(h))
            return self.mean(h) + T.randn_like(std) * std

    return Model()


def selu(T: Any) -> Any:
    nn = T.nn
    model = nn.Sequential(nn.Linear(12, 32), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(32, 4))
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight, gain=nn.init.calculate_gain("selu"))
            nn.init.uniform_(module.bias, -0.1, 0.1)
    return model


def embedding(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.drop, self.head = T.nn.Embedding(16, 8, 0), T.nn.Dropout(0.3), T.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.drop(self.table((x * 4).abs().long() % 16)).mean(1))

    return Model()


def conv1d(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(
        nn.Unflatten(1, (3, 4)), nn.Conv1d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.GELU(), nn.Dropout1d(0.3),
        nn.ConvTranspose1d(8, 4, 2), nn.Flatten(), nn.LayerNorm(20), nn.Linear(20, 4),
    )  # fmt: skip


def bilinear(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.mix = T.nn.GRUCell(6, 8), T.nn.Bilinear(8, 6, 4)

        def forward(self, x: Any) -> Any:
            first, second = x[:, :6], x[:, 6:]
            return self.mix(T.nn.functional.dropout(self.cell(first), 0.2, self.training), second)

    return Model()


def noisy(T: Any) -> Any:
    """Weights and noise from calls in the middle of the model."""

    class Model(T.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = T.nn.Parameter(T.empty(12, 4).uniform_(-0.3, 0.3))
            self.scale = T.nn.Parameter(T.rand(4))
            order = T.randperm(12)
            self.register_buffer("order", order)

        def forward(self, x: Any) -> Any:
            x = x[:, self.order]
            if self.training:
                x = x + 0.1 * T.randn(x.shape) * T.bernoulli(T.full(x.shape, 0.5))
            return x @ self.weight * self.scale

    return Model()


MODELS: dict[str, Callable[[Any], Any]] = {
    "mlp": mlp, "conv_net": conv_net, "lstm": lstm, "gru": gru, "transformer": transformer(False),
    "transformer, batch first": transformer(True), "transformer, norm first": transformer(True, True),
    "seq2seq": seq2seq, "resnet": resnet, "attention": attention, "own_attention": own_attention,
    "autoencoder": autoencoder, "selu": selu, "embedding": embedding, "conv1d": conv1d, "bilinear": bilinear,
    "noisy": noisy,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_equal_weights_and_equal_losses(name: str) -> None:
    """Two epochs with dropout and `DataLoader(shuffle=True)`; the losses are equal but for rounding in the products."""

    def train(T: Any) -> tuple[dict[str, Any], list[float]]:
        model = MODELS[name](T)
        before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
        data = T.utils.data.TensorDataset(T.randn(40, 12), T.randint(0, 4, (40,)))
        loader = T.utils.data.DataLoader(data, 7, shuffle=True)
        optimizer = T.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        losses = []
        for _ in range(2):
            for x, y in loader:
                loss = T.nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return before, losses

    (weights, losses), (their_weights, their_losses) = both(train)
    for key, value in their_weights.items():
        np.testing.assert_array_equal(weights[key], value, err_msg=key)
    np.testing.assert_allclose(losses, their_losses, rtol=2e-4)


# -- loaders -------------------------------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    """Lists of numbers of tensors, at any depth."""
    return [plain(each) for each in x] if isinstance(x, list | tuple) else (x.tolist() if hasattr(x, "tolist") else x)


@pytest.mark.parametrize("own", [False, True], ids=["default generator", "its own"])
@pytest.mark.parametrize(("n", "size", "drop_last"), [(10, 3, False), (12, 3, True), (50, 7, True)])
def test_orders(own: bool, n: int, size: int, drop_last: bool) -> None:
    def orders(T: Any) -> Any:
        D = T.utils.data
        g = T.Generator().manual_seed(9) if own else None
        data = D.TensorDataset(T.arange(n))
        loader = D.DataLoader(data, size, shuffle=True, drop_last=drop_last, generator=g)
        given: list[Any] = []
        for _ in range(3):
            given += [list(loader), T.rand(2)]
        begun = iter(loader)  # the order comes with the first batch, and the epoch stays unfinished
        given += [T.rand(1), next(begun), T.rand(1), list(loader)]
        for sampler in (
            D.RandomSampler(data, generator=g), D.RandomSampler(data, True, 77, generator=g),
            D.RandomSampler(data, num_samples=25, generator=g), D.SubsetRandomSampler([3, 5, 7], generator=g),
            D.WeightedRandomSampler([0.1, 0.5, 0.2], 20, generator=g),
            D.WeightedRandomSampler([0.1, 0.5, 0.2], 2, False, generator=g),
        ):  # fmt: skip
            given += [list(sampler), T.rand(1)]
        options = {"generator": g} if own else {}
        given += [[list(part.indices) for part in D.random_split(data, [n - 4, 4], **options)]]
        weighted = D.WeightedRandomSampler(np.arange(n) + 1.0, 20)
        given += [list(D.DataLoader(data, size, sampler=weighted)), list(D.DataLoader(data, size)), T.rand(1)]
        given += [list(D.DataLoader(data, size, shuffle=True, num_workers=2)), T.rand(1)]
        distributed = D.DistributedSampler(data, 3, 1, shuffle=True, seed=4)
        distributed.set_epoch(2)
        return plain([*given, list(distributed)])

    got, expected = both(orders)
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        assert ours == theirs, i


def test_an_epoch_goes_on_from_a_state() -> None:
    for own in (False, True):
        data = ox.utils.data.TensorDataset(ox.arange(20))

        def loader(own: bool = own, data: Any = data) -> Any:
            g = ox.Generator(5) if own else None
            return ox.utils.data.DataLoader(data, 3, shuffle=True, generator=g)

        ox.manual_seed(1)
        first = loader()
        list(first)
        batches = iter(first)
        for _ in range(2):
            next(batches)
        state, drawn = first.state_dict(), ox.get_rng_state()
        order = first.generator.get_state() if own else None
        rest = plain([list(batches), list(first), ox.rand(2)])
        ox.manual_seed(77)
        again = loader()
        again.load_state_dict(state)
        ox.set_rng_state(drawn)
        if own:
            again.generator.set_state(order)
        assert plain([list(again), list(again), ox.rand(2)]) == rest
