"""Node classification with graph convolutions: a sparse normalized adjacency from scipy-like coordinates, spmm."""

import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features = in_features
        self.out_features = out_features
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
        if self.bias is not None:
            return output + self.bias
        else:
            return output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super(GCN, self).__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass, bias=False)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


class SAGE(nn.Module):
    """Messages along an edge list, summed with index_add_ and scatter_add_, as frameworks for graphs do."""

    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.lin_l = nn.ModuleList([nn.Linear(nfeat, nhid), nn.Linear(nhid, nclass)])
        self.lin_r = nn.ModuleList([nn.Linear(nfeat, nhid, bias=False), nn.Linear(nhid, nclass, bias=False)])

    def propagate(self, x, edge_index, num_nodes):
        row, col = edge_index
        deg = torch.zeros(num_nodes, dtype=x.dtype).scatter_add_(0, col, torch.ones(col.size(0)))
        out = x.new_zeros(num_nodes, x.size(-1)).index_add_(0, col, x.index_select(0, row))
        return out / deg.clamp_(min=1).unsqueeze(-1)

    def forward(self, x, edge_index):
        n = x.size(0)
        for i, (left, right) in enumerate(zip(self.lin_l, self.lin_r)):
            x = left(self.propagate(x, edge_index, n)) + right(x)
            if i == 0:
                x = F.normalize(x.relu_(), p=2.0, dim=-1)
        return x.log_softmax(dim=-1)


def normalize(mx):
    rowsum = np.array(mx.sum(1))
    r_inv = np.power(rowsum, -1).flatten()
    r_inv[np.isinf(r_inv)] = 0.0
    return np.diag(r_inv).dot(mx)


def dense_mx_to_torch_sparse_tensor(mx):
    rows, cols = mx.nonzero()
    indices = torch.from_numpy(np.vstack((rows, cols)).astype(np.int64))
    values = torch.from_numpy(mx[rows, cols].astype(np.float32))
    shape = torch.Size(mx.shape)
    return torch.sparse_coo_tensor(indices, values, shape)


def load_data(n=30):
    rng = np.random.RandomState(7)
    labels = np.arange(n) % 3
    adj = (rng.rand(n, n) < np.where(labels[:, None] == labels[None], 0.25, 0.03)).astype(np.float64)
    adj = np.maximum(adj, adj.T)
    features = normalize(rng.rand(n, 9) + np.eye(9)[labels * 3])
    adj = normalize(adj + np.eye(n))
    idx_train, idx_val, idx_test = range(12), range(12, 20), range(20, n)
    idx_train, idx_val, idx_test = (torch.LongTensor(i) for i in (idx_train, idx_val, idx_test))
    return (
        dense_mx_to_torch_sparse_tensor(adj),
        torch.FloatTensor(np.array(features)),
        torch.LongTensor(labels),
        idx_train,
        idx_val,
        idx_test,
    )


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    correct = correct.sum()
    return correct / len(labels)


parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true", default=True, help="Disables CUDA training.")
parser.add_argument("--fastmode", action="store_true", default=False)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--weight_decay", type=float, default=5e-4)
parser.add_argument("--hidden", type=int, default=8)
parser.add_argument("--dropout", type=float, default=0.5)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
np.random.seed(args.seed)
torch.manual_seed(args.seed)
if args.cuda:
    torch.cuda.manual_seed(args.seed)
adj, features, labels, idx_train, idx_val, idx_test = load_data()
print(adj.shape, adj.is_sparse, adj.coalesce().indices().shape, torch.sparse.sum(adj).item(), features.sum().item())
gcn = GCN(nfeat=features.shape[1], nhid=args.hidden, nclass=labels.max().item() + 1, dropout=args.dropout)
optimizer = optim.Adam(gcn.parameters(), lr=args.lr, weight_decay=args.weight_decay)
print(gcn)


def train(epoch):
    t = time.time()
    gcn.train()
    optimizer.zero_grad()
    output = gcn(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    acc_train = accuracy(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    if not args.fastmode:
        gcn.eval()
        output = gcn(features, adj)
    loss_val = F.nll_loss(output[idx_val], labels[idx_val])
    acc_val = accuracy(output[idx_val], labels[idx_val])
    assert time.time() >= t
    print(
        "Epoch: {:04d}".format(epoch + 1),
        "loss_train: {:.4f}".format(loss_train.item()),
        "acc_train: {:.4f}".format(acc_train.item()),
        "loss_val: {:.4f}".format(loss_val.item()),
        "acc_val: {:.4f}".format(acc_val.item()),
    )


for epoch in range(args.epochs):
    train(epoch)
gcn.eval()
output = gcn(features, adj)
print(
    "Test set results:",
    F.nll_loss(output[idx_test], labels[idx_test]).item(),
    accuracy(output[idx_test], labels[idx_test]).item(),
)
dense = adj.to_dense()
print(torch.allclose(gcn(features, dense), output, atol=1e-5), torch.sparse.mm(adj, features)[0])
edge_index = (dense > 0).nonzero().t().contiguous()
both = torch.cat([edge_index, edge_index.flip(0), torch.arange(30).repeat(2, 1)], dim=1).unique(dim=1)
ones = torch.sparse_coo_tensor(both, torch.ones(both.size(1)), (30, 30)).coalesce()
degree = torch.sparse.sum(ones, dim=1).to_dense()
row, col = ones.indices()
values = degree[row].pow(-0.5) * ones.values() * degree[col].pow(-0.5)
symmetric = torch.sparse.FloatTensor(ones.indices(), values, torch.Size([30, 30]))
print(symmetric._nnz(), symmetric.to_dense().sum().item(), F.nll_loss(output, labels, reduction="sum").item())
model = SAGE(9, 8, 3)
optimizer = optim.Rprop(model.parameters(), lr=0.01)
for epoch in range(4):
    optimizer.zero_grad()
    out = model(features, edge_index)
    loss = F.nll_loss(out[idx_train], labels[idx_train], weight=torch.tensor([1.0, 2.0, 0.5]))
    loss.backward()
    optimizer.step()
    print("sage", epoch, loss.item(), (out.argmax(dim=1)[idx_test] == labels[idx_test]).sum().item())
example = (features, edge_index)
