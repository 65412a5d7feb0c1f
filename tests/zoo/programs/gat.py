"""Graph attention: dense with a mask of -9e15, and sparse with a custom autograd function, trained with patience."""

import glob
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, dropout, alpha, concat=True):
        super(GraphAttentionLayer, self).__init__()
        self.dropout = dropout
        self.in_features = in_features
        self.out_features = out_features
        self.alpha = alpha
        self.concat = concat
        self.W = nn.Parameter(torch.empty(size=(in_features, out_features)))
        nn.init.xavier_uniform_(self.W.data, gain=1.414)
        self.a = nn.Parameter(torch.empty(size=(2 * out_features, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(self.alpha)

    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)
        e = self._prepare_attentional_mechanism_input(Wh)
        zero_vec = -9e15 * torch.ones_like(e)
        attention = torch.where(adj > 0, e, zero_vec)
        attention = F.softmax(attention, dim=1)
        attention = F.dropout(attention, self.dropout, training=self.training)
        h_prime = torch.matmul(attention, Wh)
        if self.concat:
            return F.elu(h_prime)
        else:
            return h_prime

    def _prepare_attentional_mechanism_input(self, Wh):
        Wh1 = torch.matmul(Wh, self.a[: self.out_features, :])
        Wh2 = torch.matmul(Wh, self.a[self.out_features :, :])
        e = Wh1 + Wh2.T
        return self.leakyrelu(e)


class SpecialSpmmFunction(torch.autograd.Function):
    """A sparse matrix times a dense one, with gradients for the values of the sparse one only where it has any."""

    @staticmethod
    def forward(ctx, indices, values, shape, b):
        assert indices.requires_grad == False  # noqa: E712
        a = torch.sparse_coo_tensor(indices, values, shape)
        ctx.save_for_backward(a, b)
        ctx.N = shape[0]
        return torch.matmul(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_values = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a_dense = grad_output.matmul(b.t())
            edge_idx = a._indices()[0, :] * ctx.N + a._indices()[1, :]
            grad_values = grad_a_dense.view(-1)[edge_idx]
        if ctx.needs_input_grad[3]:
            grad_b = a.t().matmul(grad_output)
        return None, grad_values, None, grad_b


class SpecialSpmm(nn.Module):
    def forward(self, indices, values, shape, b):
        return SpecialSpmmFunction.apply(indices, values, shape, b)


class SpGraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, dropout, alpha, concat=True):
        super(SpGraphAttentionLayer, self).__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.concat = concat
        self.W = nn.Parameter(torch.zeros(size=(in_features, out_features)))
        nn.init.xavier_normal_(self.W.data, gain=1.414)
        self.a = nn.Parameter(torch.zeros(size=(1, 2 * out_features)))
        nn.init.xavier_normal_(self.a.data, gain=1.414)
        self.dropout = nn.Dropout(dropout)
        self.leakyrelu = nn.LeakyReLU(alpha)
        self.special_spmm = SpecialSpmm()

    def forward(self, input, adj):
        dv = "cuda" if input.is_cuda else "cpu"
        N = input.size()[0]
        edge = adj.nonzero().t()
        h = torch.mm(input, self.W)
        assert not torch.isnan(h).any()
        edge_h = torch.cat((h[edge[0, :], :], h[edge[1, :], :]), dim=1).t()
        edge_e = torch.exp(-self.leakyrelu(self.a.mm(edge_h).squeeze()))
        assert not torch.isnan(edge_e).any()
        e_rowsum = self.special_spmm(edge, edge_e, torch.Size([N, N]), torch.ones(size=(N, 1), device=dv))
        edge_e = self.dropout(edge_e)
        h_prime = self.special_spmm(edge, edge_e, torch.Size([N, N]), h)
        h_prime = h_prime.div(e_rowsum)
        if self.concat:
            return F.elu(h_prime)
        return h_prime

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GAT(nn.Module):
    def __init__(self, layer, nfeat, nhid, nclass, dropout, alpha, nheads):
        super(GAT, self).__init__()
        self.dropout = dropout
        self.attentions = [layer(nfeat, nhid, dropout=dropout, alpha=alpha, concat=True) for _ in range(nheads)]
        for i, attention in enumerate(self.attentions):
            self.add_module("attention_{}".format(i), attention)
        self.out_att = layer(nhid * nheads, nclass, dropout=dropout, alpha=alpha, concat=False)

    def forward(self, x, adj):
        x = F.dropout(x, self.dropout, training=self.training)
        x = torch.cat([att(x, adj) for att in self.attentions], dim=1)
        x = F.dropout(x, self.dropout, training=self.training)
        x = F.elu(self.out_att(x, adj))
        return F.log_softmax(x, dim=1)


def load_data(n=24):
    rng = np.random.RandomState(3)
    labels = np.arange(n) % 3
    adj = (rng.rand(n, n) < np.where(labels[:, None] == labels[None], 0.3, 0.04)).astype(np.float32)
    adj = np.maximum(np.maximum(adj, adj.T), np.eye(n, dtype=np.float32))
    features = rng.rand(n, 6).astype(np.float32) + np.eye(6, dtype=np.float32)[labels]
    return torch.from_numpy(adj), torch.from_numpy(features), torch.from_numpy(labels)


adj, features, labels = load_data()
idx_train, idx_val = torch.arange(15), torch.arange(15, 24)
for layer in (GraphAttentionLayer, SpGraphAttentionLayer):
    torch.manual_seed(72)
    model = GAT(layer, features.size(1), 4, int(labels.max()) + 1, dropout=0.3, alpha=0.2, nheads=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    loss_values, bad_counter, best, best_epoch = [], 0, 6 + 1, 0
    for epoch in range(6):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        model.eval()
        output = model(features, adj)
        loss_val = F.nll_loss(output[idx_val], labels[idx_val])
        print("Epoch: {:04d} {:.4f} {:.4f}".format(epoch + 1, loss_train.data.item(), loss_val.data.item()))
        loss_values.append(loss_val.data.item())
        torch.save(model.state_dict(), "{}.pkl".format(epoch))
        if loss_values[-1] < best:
            best, best_epoch, bad_counter = loss_values[-1], epoch, 0
        else:
            bad_counter += 1
        if bad_counter == 3:
            break
        for file in glob.glob("*.pkl"):
            if int(file.split(".")[0]) < best_epoch:
                os.remove(file)
    model.load_state_dict(torch.load("{}.pkl".format(best_epoch)))
    print("loaded", best_epoch, sorted(glob.glob("*.pkl")), model(features, adj).exp().max(1)[0].mean().item())
    print([name for name, _ in model.named_children()])
    for file in glob.glob("*.pkl"):
        os.remove(file)
    if layer is GraphAttentionLayer:
        dense = model
model, example = dense, (features, adj)
