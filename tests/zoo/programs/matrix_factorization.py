"""Recommenders: matrix factorisation with biases, a neural one with BPR, and a factorisation machine."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import data
from torch.utils.data import random_split


class Ratings(data.Dataset):
    """(user, item) pairs and the ratings of them, from a dense array."""

    def __init__(self, users, items, seed=0):
        rng = np.random.RandomState(seed)
        true = rng.randn(users, 3) @ rng.randn(3, items) + 3
        mask = rng.rand(users, items) < 0.5
        self.items = np.argwhere(mask).astype(np.int64)
        self.targets = np.clip(true[mask], 1, 5).astype(np.float32)
        self.field_dims = np.array((users, items))

    def __len__(self):
        return self.targets.shape[0]

    def __getitem__(self, index):
        return self.items[index], self.targets[index]


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=4, dropout_p=0.1, sparse=False):
        super().__init__()
        self.user_biases = nn.Embedding(n_users, 1, sparse=sparse)
        self.item_biases = nn.Embedding(n_items, 1, sparse=sparse)
        self.user_embeddings = nn.Embedding(n_users, n_factors, sparse=sparse)
        self.item_embeddings = nn.Embedding(n_items, n_factors, sparse=sparse)
        self.dropout = nn.Dropout(p=dropout_p)
        self.mu = nn.Parameter(torch.tensor(3.0))
        for bias in (self.user_biases, self.item_biases):
            nn.init.zeros_(bias.weight)

    def forward(self, users, items):
        ues = self.user_embeddings(users)
        uis = self.item_embeddings(items)
        preds = self.mu + self.user_biases(users)
        preds = preds + self.item_biases(items)
        preds += (self.dropout(ues) * self.dropout(uis)).sum(dim=1, keepdim=True)
        return preds.squeeze()


class NeuMF(nn.Module):
    def __init__(self, n_users, n_items, dim=4):
        super().__init__()
        self.embed_user_GMF = nn.Embedding(n_users, dim)
        self.embed_item_GMF = nn.Embedding(n_items, dim)
        self.embed_user_MLP = nn.Embedding(n_users, dim * 2)
        self.embed_item_MLP = nn.Embedding(n_items, dim * 2)
        MLP_modules = []
        for i in range(2):
            input_size = dim * (2 ** (2 - i))
            MLP_modules.append(nn.Dropout(p=0.0))
            MLP_modules.append(nn.Linear(input_size, input_size // 2))
            MLP_modules.append(nn.ReLU())
        self.MLP_layers = nn.Sequential(*MLP_modules)
        self.predict_layer = nn.Linear(dim * 2, 1)
        self._init_weight_()

    def _init_weight_(self):
        for name in ("user_GMF", "item_GMF", "user_MLP", "item_MLP"):
            nn.init.normal_(getattr(self, "embed_" + name).weight, std=0.1)
        for m in self.MLP_layers:
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
        nn.init.kaiming_uniform_(self.predict_layer.weight, a=1, nonlinearity="sigmoid")
        for m in self.modules():
            if isinstance(m, nn.Linear) and m.bias is not None:
                m.bias.data.zero_()

    def forward(self, user, item):
        output_GMF = self.embed_user_GMF(user) * self.embed_item_GMF(item)
        interaction = torch.cat((self.embed_user_MLP(user), self.embed_item_MLP(item)), -1)
        concat = torch.cat((output_GMF, self.MLP_layers(interaction)), -1)
        return self.predict_layer(concat).view(-1)


class FeaturesLinear(nn.Module):
    def __init__(self, field_dims, output_dim=1):
        super().__init__()
        self.fc = nn.Embedding(sum(field_dims), output_dim)
        self.bias = nn.Parameter(torch.zeros((output_dim,)))
        self.offsets = np.array((0, *np.cumsum(field_dims)[:-1]), dtype=np.int64)

    def forward(self, x):
        x = x + x.new_tensor(self.offsets).unsqueeze(0)
        return torch.sum(self.fc(x), dim=1) + self.bias


class FactorizationMachineModel(nn.Module):
    def __init__(self, field_dims, embed_dim):
        super().__init__()
        self.embedding = nn.Embedding(sum(field_dims), embed_dim)
        self.offsets = np.array((0, *np.cumsum(field_dims)[:-1]), dtype=np.int64)
        nn.init.xavier_uniform_(self.embedding.weight.data)
        self.linear = FeaturesLinear(field_dims)

    def forward(self, x):
        e = self.embedding(x + x.new_tensor(self.offsets).unsqueeze(0))
        square_of_sum = torch.sum(e, dim=1) ** 2
        sum_of_square = torch.sum(e**2, dim=1)
        ix = 0.5 * torch.sum(square_of_sum - sum_of_square, dim=1, keepdim=True)
        return torch.sigmoid((self.linear(x) + ix).squeeze(1))


def roc_auc(scores, targets):
    order = torch.argsort(scores)
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    pos = targets.bool()
    n_pos, n_neg = pos.sum(), (~pos).sum()
    return ((ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)).item()


class EarlyStopper(object):
    def __init__(self, num_trials, save_path):
        self.num_trials, self.save_path = num_trials, save_path
        self.trial_counter, self.best_accuracy = 0, 0

    def is_continuable(self, model, accuracy):
        if accuracy > self.best_accuracy:
            self.best_accuracy = accuracy
            self.trial_counter = 0
            torch.save(model.state_dict(), self.save_path)
            return True
        elif self.trial_counter + 1 < self.num_trials:
            self.trial_counter += 1
            return True
        return False


torch.manual_seed(0)
dataset = Ratings(12, 15)
train_length = int(len(dataset) * 0.8)
train, test = random_split(dataset, (train_length, len(dataset) - train_length))
train_loader = data.DataLoader(train, batch_size=16, shuffle=True)
test_loader = data.DataLoader(test, batch_size=16)
mf = MatrixFactorization(12, 15)
optimizer = torch.optim.Adam(
    [{"params": [p for n, p in mf.named_parameters() if "biases" in n], "weight_decay": 0.0}]
    + [{"params": [p for n, p in mf.named_parameters() if "biases" not in n]}],
    lr=0.05,
    weight_decay=1e-3,
)
for epoch in range(3):
    mf.train()
    total = torch.Tensor([0])
    for batch, (fields, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.mse_loss(mf(fields[:, 0], fields[:, 1]), target, reduction="sum")
        loss.backward()
        optimizer.step()
        total += loss.item()
    mf.eval()
    with torch.no_grad():
        errors = torch.cat([mf(*f.unbind(1)) - t for f, t in test_loader])
    rmse = errors.pow(2).mean().sqrt()
    print(f"epoch {epoch} train {total.item() / len(train):.4f} rmse {rmse:.4f} mu {mf.mu.item():.4f}")
neumf = NeuMF(12, 15)
opt = torch.optim.Adam(neumf.parameters(), lr=0.01)
seen = {tuple(p) for p in dataset.items.tolist()}
for step in range(4):
    fields = torch.from_numpy(dataset.items)[torch.randperm(len(dataset))[:24]]
    user, item_i, item_j = fields[:, 0], fields[:, 1], torch.randint(0, 15, (24,))
    fresh = torch.tensor([(u, j) not in seen for u, j in zip(user.tolist(), item_j.tolist())])
    loss = -(neumf(user, item_i) - neumf(user, item_j))[fresh].sigmoid().log().sum()
    neumf.zero_grad()
    loss.backward()
    opt.step()
    print("bpr", step, loss.item(), fresh.sum().item())
scores = neumf(torch.zeros(15, dtype=torch.long), torch.arange(15))
_, indices = torch.topk(scores, 5)
recommends = torch.take(torch.arange(100, 115), indices).cpu().numpy().tolist()
print(recommends, (1 / np.log2(np.arange(5) + 2)).sum())
model = FactorizationMachineModel(dataset.field_dims, 4)
criterion = nn.BCELoss()
opt = torch.optim.Adam(params=model.parameters(), lr=0.02, weight_decay=1e-6)
stopper = EarlyStopper(2, "fm.pt")
for epoch in range(3):
    for fields, target in train_loader:
        y = model(fields)
        loss = criterion(y, (target > 3).float())
        model.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        auc = roc_auc(torch.cat([model(f) for f, _ in test_loader]), torch.cat([t > 3 for _, t in test_loader]))
    print("epoch:", epoch, "loss", loss.item(), "validation: auc:", auc)
    if not stopper.is_continuable(model, auc):
        print(f"validation: best auc: {stopper.best_accuracy}")
        break
model.load_state_dict(torch.load("fm.pt", weights_only=True))
example = fields[:4]
