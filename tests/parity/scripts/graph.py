"""Graph convolutions: a normalized sparse adjacency with spmm, and message passing by index_add and scatter."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


class GAT(nn.Module):
    """Attention over edges, by scatter operations."""

    def __init__(self, n_in, n_out, heads=2):
        super().__init__()
        self.heads, self.n_out = heads, n_out
        self.lin = nn.Linear(n_in, heads * n_out, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, n_out))
        self.att_dst = nn.Parameter(torch.empty(1, heads, n_out))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x).view(-1, self.heads, self.n_out)
        alpha = (h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst]
        alpha = F.leaky_relu(alpha, 0.2)
        n = x.size(0)
        index = dst.unsqueeze(-1).expand_as(alpha)
        top = torch.full((n, self.heads), float("-inf")).scatter_reduce(0, index, alpha.detach(), reduce="amax")
        alpha = (alpha - top[dst]).exp()
        total = torch.zeros(n, self.heads).scatter_add_(0, index, alpha)
        alpha = alpha / (total[dst] + 1e-16)
        out = torch.zeros_like(h).index_add_(0, dst, h[src] * alpha.unsqueeze(-1))
        degree = torch.bincount(dst, minlength=n).clamp(min=1)
        mean = torch.zeros_like(h).index_add(0, dst, h[src]) / degree.view(-1, 1, 1)
        return torch.cat([out, mean], dim=-1).flatten(1)


def normalize(edges, n):
    i = torch.cat([edges, edges.flip(0), torch.arange(n).repeat(2, 1)], dim=1).unique(dim=1)
    adj = torch.sparse_coo_tensor(i, torch.ones(i.size(1)), (n, n)).coalesce()
    degree = torch.sparse.sum(adj, dim=1).to_dense()
    row, col = adj.indices()
    values = degree[row].pow(-0.5) * adj.values() * degree[col].pow(-0.5)
    return torch.sparse.FloatTensor(adj.indices(), values, torch.Size([n, n]))


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    return correct.sum() / len(labels)


def main(fill, numbers):
    n = 12
    features = torch.FloatTensor(np.abs(numbers(n, 5)))
    features = features / features.sum(1, keepdim=True)
    edges = torch.from_numpy((abs(numbers(2, 20)) * 30).astype(np.int64) % n)
    adj = normalize(edges, n)
    labels = torch.LongTensor(np.where(np.eye(3)[np.arange(n) % 3])[1])
    idx_train, idx_val = torch.LongTensor(range(8)), torch.LongTensor(range(8, n))
    model = fill(GCN(5, 8, 3, 0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    trace = []
    for epoch in range(4):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        model.eval()
        output = model(features, adj)
        trace += [loss_train.item(), accuracy(output[idx_val], labels[idx_val]).item()]
    gat = fill(GAT(5, 3))
    opt = torch.optim.Adamax(gat.parameters(), lr=0.05)
    for epoch in range(4):
        opt.zero_grad()
        loss = (gat(features, edges) - F.one_hot(labels, 12).float()).pow(2).mean()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    dense = adj.to_dense()
    same = torch.sparse.mm(adj, features) - dense @ features
    return trace + [dense.sum().item(), same.abs().max().item(), float(adj._nnz())]
