"""Networks on graphs: features of nodes, and edges as pairs of node numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from architecture import architecture, integers, normal

import ox
import ox.nn.functional as F
from ox import nn


class GCNConv(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.lin, self.bias = nn.Linear(cin, cout, bias=False), nn.Parameter(ox.zeros(cout))

    def forward(self, x: Any, edge_index: Any) -> Any:
        n = x.size(0)
        loop = ox.arange(n).unsqueeze(0).repeat(2, 1)
        edge_index = ox.cat([edge_index, loop], dim=1)
        row, col = edge_index[0], edge_index[1]
        deg = ox.zeros(n).scatter_add_(0, col, ox.ones(col.size(0)))
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        x = self.lin(x)
        out = ox.zeros_like(x)
        out.index_add_(0, col, norm.unsqueeze(-1) * x[row])
        return out + self.bias


class GCN(nn.Module):
    """Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", 2016."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(4, 8), GCNConv(8, 3)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = F.dropout(F.relu(self.conv1(x, edge_index)), training=self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


class GAT(nn.Module):
    """Velickovic et al., "Graph Attention Networks", 2017: a softmax over the edges that come in."""

    def __init__(self, cin: int = 4, cout: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.cout = heads, cout
        self.lin = nn.Linear(cin, heads * cout, bias=False)
        self.att_src, self.att_dst = nn.Parameter(ox.randn(1, heads, cout)), nn.Parameter(ox.randn(1, heads, cout))

    def forward(self, x: Any, edge_index: Any) -> Any:
        H, C, N = self.heads, self.cout, x.size(0)
        src, dst = edge_index
        x = self.lin(x).view(-1, H, C)
        alpha = (x * self.att_src).sum(-1)[src] + (x * self.att_dst).sum(-1)[dst]
        alpha = F.leaky_relu(alpha, 0.2)
        index = dst.unsqueeze(-1).expand_as(alpha)
        top = ox.full((N, H), float("-inf")).scatter_reduce(0, index, alpha, reduce="amax", include_self=True)
        alpha = ox.exp(alpha - top[dst])
        total = ox.zeros(N, H).scatter_add(0, index, alpha) + 1e-16
        alpha = alpha / total[dst]
        message = x[src] * alpha.unsqueeze(-1)
        out = ox.zeros(N, H, C).index_add(0, dst, message)
        return F.elu(out.reshape(N, H * C))


class MessagePassing(nn.Module):
    """Gilmer et al., "Neural Message Passing for Quantum Chemistry", 2017: features of edges, a GRU, a mean."""

    def __init__(self, graphs: int = 3) -> None:
        super().__init__()
        self.graphs, self.embed = graphs, nn.Linear(4, 8)
        self.message, self.gru, self.readout = (
            nn.Sequential(nn.Linear(18, 8), nn.ReLU()),
            nn.GRUCell(8, 8),
            nn.Linear(8, 1),
        )

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, batch: Any) -> Any:
        h = self.embed(x)
        for _ in range(2):
            m = self.message(ox.cat([h[edge_index[0]], h[edge_index[1]], edge_attr], dim=-1))
            where = edge_index[1].view(-1, 1).expand(-1, m.size(1))
            h = self.gru(ox.zeros_like(h).scatter_reduce_(0, where, m, "mean", include_self=False), h)
        total = ox.zeros(self.graphs, 8).index_add(0, batch, h)
        count = ox.bincount(batch, minlength=self.graphs).clamp(min=1).unsqueeze(1)
        return self.readout(total / count).squeeze(-1)


def _edges(nodes: int, edges: int) -> Any:
    random = np.random.default_rng(0)
    return np.concatenate([np.arange(nodes)[None, :].repeat(2, 0), random.integers(0, nodes, (2, edges - nodes))], 1)


def _graph(nodes: int, edges: int) -> tuple[Any, ...]:
    return normal(nodes, 4), _edges(nodes, edges)


def _molecules(nodes: int, edges: int) -> tuple[Any, ...]:
    return normal(nodes, 4), _edges(nodes, edges), normal(edges, 2), np.sort(integers(3, nodes))


GRAPH: dict[str, list[Any]] = {"x": ["nodes", 4], "edge_index": [2, "edges"]}
SIZES, OPEN = {"nodes": (8, 5), "edges": (20, 31)}, ("nodes", "edges")
ADDS = 16  # the opset from which ScatterElements adds
COMPARES = 18  # the opset from which it takes the largest

MODELS = {
    "GCN": architecture(GCN, _graph, GRAPH, **SIZES, varying=OPEN, lowest=ADDS),
    "GAT": architecture(GAT, _graph, GRAPH, **SIZES, varying=OPEN, lowest=COMPARES),
    "MessagePassing": architecture(
        MessagePassing,
        _molecules,
        GRAPH | {"edge_attr": ["edges", 2], "batch": ["nodes"]},
        **SIZES,
        varying=OPEN,
        lowest=ADDS,
    ),
}
