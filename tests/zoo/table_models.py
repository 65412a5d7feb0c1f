"""Models of tables, clicks and pairs."""

from __future__ import annotations

from typing import Any

from architecture import architecture, integers, normal

import ox
import ox.nn.functional as F
from ox import nn


class Siamese(nn.Module):
    """Koch et al., "Siamese Neural Networks for One-shot Image Recognition", 2015: two images, one network."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(inplace=True), nn.InstanceNorm2d(8, affine=True), nn.AdaptiveAvgPool2d(2)
        )
        self.fc, self.distance = nn.Sequential(nn.Linear(32, 16), nn.Sigmoid()), nn.PairwiseDistance(p=2)

    def forward_once(self, x: Any) -> Any:
        x = self.cnn(x)
        return self.fc(x.view(x.size()[0], -1))

    def forward(self, input1: Any, input2: Any) -> Any:
        output1, output2 = self.forward_once(input1), self.forward_once(input2)
        return self.distance(output1, output2), F.cosine_similarity(output1, output2)


class TwoTower(nn.Module):
    """Yi et al., "Sampling-Bias-Corrected Neural Modeling", 2019: queries against all items of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(40, 8), nn.EmbeddingBag(60, 8, mode="mean")
        self.user_mlp, self.item_mlp = nn.Linear(8, 6), nn.Linear(8, 6)
        self.logit_scale = nn.Parameter(ox.ones([]) * 2.6592)

    def forward(self, user_ids: Any, item_words: Any) -> Any:
        u = self.user_mlp(self.user(user_ids))
        v = self.item_mlp(self.item(item_words))
        u, v = u / u.norm(dim=-1, keepdim=True), F.normalize(v, p=2, dim=-1)
        scores = self.logit_scale.exp() * u @ v.t()
        return scores, scores.topk(3, dim=1).indices


class DLRM(nn.Module):
    """Naumov et al., "Deep Learning Recommendation Model", 2019: products of all pairs of features."""

    def __init__(self, m: int = 4) -> None:
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(n, m) for n in (10, 20, 30)])
        self.bot = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, m), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(m + 6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, dense: Any, sparse: Any) -> Any:
        x = self.bot(dense)
        ly = [emb(sparse[:, i]) for i, emb in enumerate(self.emb)]
        batch_size, d = x.shape
        T = ox.cat([x] + ly, dim=1).view((batch_size, -1, d))
        Z = ox.bmm(T, ox.transpose(T, 1, 2))
        _, ni, nj = Z.shape
        li = ox.tensor([i for i in range(ni) for j in range(i)])
        lj = ox.tensor([j for i in range(nj) for j in range(i)])
        R = ox.cat([x] + [Z[:, li, lj]], dim=1)
        return self.top(R)


class DeepFM(nn.Module):
    """Guo et al., "DeepFM", 2017: one table for all fields, by offsets."""

    def __init__(self, fields: tuple[int, ...] = (10, 20, 30), dim: int = 4) -> None:
        super().__init__()
        offsets = [sum(fields[:i]) for i in range(len(fields))]
        self.register_buffer("offsets", ox.tensor(offsets))
        self.linear, self.embedding = nn.Embedding(sum(fields), 1), nn.Embedding(sum(fields), dim)
        self.bias, self.width = nn.Parameter(ox.zeros((1,))), len(fields) * dim
        self.mlp = nn.Sequential(
            nn.Linear(self.width, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.offsets.unsqueeze(0)
        embed = self.embedding(x)
        square_of_sum = ox.sum(embed, dim=1) ** 2
        sum_of_square = ox.sum(embed**2, dim=1)
        fm = 0.5 * ox.sum(square_of_sum - sum_of_square, dim=1, keepdim=True)
        linear = ox.sum(self.linear(x), dim=1) + self.bias
        return ox.sigmoid((linear + fm + self.mlp(embed.view(-1, self.width))).squeeze(1))


class FTTransformer(nn.Module):
    """Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data", 2021: each column is a token."""

    def __init__(self, numbers: int = 4, categories: tuple[int, ...] = (3, 5), d: int = 8) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(ox.randn(numbers, d)), nn.Parameter(ox.randn(numbers, d))
        self.tables, self.cls = nn.ModuleList([nn.Embedding(n, d) for n in categories]), nn.Parameter(ox.randn(1, d))
        layer = nn.TransformerEncoderLayer(d, 2, 16, dropout=0.1, activation=F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 2))

    def forward(self, x_num: Any, x_cat: Any) -> Any:
        x_num = ox.nan_to_num(x_num, nan=0.0)
        tokens = [self.weight[None] * x_num[..., None] + self.bias[None]]
        tokens += [table(x_cat[:, i]).unsqueeze(1) for i, table in enumerate(self.tables)]
        x = ox.cat([self.cls.expand(len(x_num), 1, -1), *tokens], dim=1)
        return self.head(self.encoder(x)[:, 0])


class TabNet(nn.Module):
    """Arik and Pfister, "TabNet", 2019: columns chosen by a sparse softmax, step by step."""

    def __init__(self, columns: int = 6, width: int = 8) -> None:
        super().__init__()
        self.bn, self.width = nn.BatchNorm1d(columns), width
        self.first = nn.Linear(columns, 2 * width)
        self.steps = nn.ModuleList([nn.Linear(columns, 2 * width) for _ in range(2)])
        self.attentive = nn.ModuleList([nn.Linear(width, columns) for _ in range(2)])
        self.out = nn.Linear(width // 2, 2)

    @staticmethod
    def sparsemax(z: Any) -> Any:
        ordered, _ = ox.sort(z, dim=-1, descending=True)
        rank = ox.arange(1, z.size(-1) + 1, dtype=z.dtype)
        total = ordered.cumsum(-1)
        k = (1 + rank * ordered > total).sum(-1, keepdim=True)
        tau = (total.gather(-1, k - 1) - 1) / k
        return ox.clamp(z - tau, min=0)

    def forward(self, x: Any) -> Any:
        x = self.bn(x)
        prior, total = ox.ones_like(x), 0.0
        a = F.glu(self.first(x))
        for step, attentive in zip(self.steps, self.attentive):
            mask = self.sparsemax(attentive(a) * prior)
            prior = prior * (1.3 - mask)
            a = F.glu(step(mask * x))
            total = total + F.relu(a[:, : self.width // 2])
        return self.out(total), mask


MODELS = {
    "Siamese": architecture(
        Siamese,
        lambda batch, h, w: (normal(batch, 1, h, w), normal(batch, 1, h, w, seed=1)),
        {"input1": ["batch", 1, "h", "w"], "input2": ["batch", 1, "h", "w"]},
        batch=(8, 3),
        h=(12, 15),
        w=(12, 20),
    ),
    "TwoTower": architecture(
        TwoTower,
        lambda users, items, words: (integers(40, users), integers(60, items, words)),
        {"user_ids": ["users"], "item_words": ["items", "words"]},
        users=(8, 3),
        items=(6, 9),
        words=(4, 2),
        varying=("users", "items"),
    ),
    "DLRM": architecture(
        DLRM,
        lambda batch: (normal(batch, 5), integers(10, batch, 3)),
        {"dense": ["batch", 5], "sparse": ["batch", 3]},
        batch=(8, 3),
    ),
    "DeepFM": architecture(DeepFM, lambda batch: (integers(10, batch, 3),), {"x": ["batch", 3]}, batch=(8, 3)),
    "FTTransformer": architecture(
        FTTransformer,
        lambda batch: (normal(batch, 4), integers(3, batch, 2)),
        {"x_num": ["batch", 4], "x_cat": ["batch", 2]},
        batch=(8, 3),
    ),
    "TabNet": architecture(TabNet, lambda batch: (normal(batch, 6),), {"x": ["batch", 6]}, batch=(8, 3)),
}
