"""A siamese network with contrastive loss, then triplets mined inside the batch; pairs drawn by a Dataset."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.autograd import Variable
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import BatchSampler

cuda = torch.cuda.is_available() and False


class SiameseDataset(Dataset):
    def __init__(self, data, labels, train=True):
        self.data, self.labels, self.train = data, labels, train
        self.labels_set = set(self.labels.numpy())
        self.label_to_indices = {label: np.where(self.labels.numpy() == label)[0] for label in self.labels_set}

    def __getitem__(self, index):
        target = np.random.randint(0, 2)
        img1, label1 = self.data[index], self.labels[index].item()
        if target == 1:
            siamese_index = index
            while siamese_index == index:
                siamese_index = np.random.choice(self.label_to_indices[label1])
        else:
            siamese_label = np.random.choice(sorted(self.labels_set - set([label1])))
            siamese_index = np.random.choice(self.label_to_indices[siamese_label])
        return (img1, self.data[siamese_index]), target

    def __len__(self):
        return len(self.data)


class BalancedBatchSampler(BatchSampler):
    """Batches of n_samples of each of n_classes classes."""

    def __init__(self, labels, n_classes, n_samples):
        self.labels = labels
        self.labels_set = sorted(set(self.labels.numpy()))
        self.label_to_indices = {label: np.where(self.labels.numpy() == label)[0] for label in self.labels_set}
        for label in self.labels_set:
            np.random.shuffle(self.label_to_indices[label])
        self.used = {label: 0 for label in self.labels_set}
        self.n_classes, self.n_samples = n_classes, n_samples
        self.n_dataset = len(self.labels)
        self.batch_size = self.n_samples * self.n_classes

    def __iter__(self):
        count = 0
        while count + self.batch_size <= self.n_dataset:
            classes = np.random.choice(self.labels_set, self.n_classes, replace=False)
            indices = []
            for class_ in classes:
                start = self.used[class_]
                indices.extend(self.label_to_indices[class_][start : start + self.n_samples])
                self.used[class_] += self.n_samples
                if self.used[class_] + self.n_samples > len(self.label_to_indices[class_]):
                    np.random.shuffle(self.label_to_indices[class_])
                    self.used[class_] = 0
            yield indices
            count += self.batch_size

    def __len__(self):
        return self.n_dataset // self.batch_size


class EmbeddingNet(nn.Module):
    def __init__(self):
        super(EmbeddingNet, self).__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 8, 5),
            nn.PReLU(),
            nn.MaxPool2d(2, stride=2),
            nn.Conv2d(8, 12, 3),
            nn.PReLU(),
            nn.MaxPool2d(2, 2),
        )
        self.fc = nn.Sequential(nn.Linear(12 * 2 * 2, 16), nn.PReLU(), nn.Linear(16, 2))

    def forward(self, x):
        output = self.convnet(x)
        output = output.view(output.size()[0], -1)
        return self.fc(output)

    def get_embedding(self, x):
        return self.forward(x)


class SiameseNet(nn.Module):
    def __init__(self, embedding_net):
        super(SiameseNet, self).__init__()
        self.embedding_net = embedding_net

    def forward(self, x1, x2):
        return self.embedding_net(x1), self.embedding_net(x2)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin
        self.eps = 1e-9

    def forward(self, output1, output2, target, size_average=True):
        distances = (output2 - output1).pow(2).sum(1)
        losses = 0.5 * (
            target.float() * distances
            + (1 + -1 * target).float() * F.relu(self.margin - (distances + self.eps).sqrt()).pow(2)
        )
        return losses.mean() if size_average else losses.sum()


def pdist(vectors):
    return (
        -2 * vectors.mm(torch.t(vectors))
        + vectors.pow(2).sum(dim=1).view(1, -1)
        + vectors.pow(2).sum(dim=1).view(-1, 1)
    )


def hardest_triplets(embeddings, labels):
    """For every anchor the farthest of its class and the nearest of the others, from a matrix of distances."""
    dist = pdist(embeddings).clamp(min=1e-12).sqrt()
    n = dist.size(0)
    same = labels.expand(n, n).eq(labels.expand(n, n).t())
    dist_ap, dist_an = [], []
    for i in range(n):
        dist_ap.append(dist[i][same[i]].max().unsqueeze(0))
        dist_an.append(dist[i][same[i] == 0].min().unsqueeze(0))
    return torch.cat(dist_ap), torch.cat(dist_an)


class OnlineTripletLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin
        self.ranking_loss = nn.MarginRankingLoss(margin=margin)

    def forward(self, embeddings, target):
        dist_ap, dist_an = hardest_triplets(embeddings, target)
        y = torch.ones_like(dist_an)
        return self.ranking_loss(dist_an, dist_ap, y), (dist_an.data > dist_ap.data).sum() * 1.0 / y.size(0)


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    labels = torch.LongTensor([random.randrange(4) for _ in range(32)])
    images = torch.randn(32, 1, 16, 16) * 0.5
    for i in range(32):
        images[i, 0, 4 * labels[i] : 4 * labels[i] + 4] += 1.0
    model = SiameseNet(EmbeddingNet())
    if cuda:
        model.cuda()
    loss_fn = ContrastiveLoss(1.0)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.1, last_epoch=-1)
    loader = DataLoader(SiameseDataset(images, labels), batch_size=16, shuffle=True)
    for epoch in range(2):
        model.train()
        for batch_idx, (data, target) in enumerate(loader):
            if type(data) not in (tuple, list):
                data = (data,)
            optimizer.zero_grad()
            outputs = model(*data)
            loss = loss_fn(*outputs, target)
            loss.backward()
            optimizer.step()
            print("Train: [{}/{}]\tLoss: {:.6f}".format(batch_idx * len(data[0]), len(loader.dataset), loss.item()))
        scheduler.step()
        print(type(data).__name__, target.dtype, target.tolist())
    net = EmbeddingNet()
    criterion = OnlineTripletLoss(0.3)
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    sampler = BalancedBatchSampler(labels, n_classes=3, n_samples=3)
    online = DataLoader(torch.utils.data.TensorDataset(images, labels), batch_sampler=sampler)
    for epoch in range(2):
        for x, t in online:
            x, t = Variable(x), Variable(t)
            loss, prec = criterion(net(x), t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("triplet {:.5f} prec {:.3f} classes {}".format(loss.item(), prec, t.unique().tolist()))
    anchor, positive, negative = net(images[:5]), net(images[5:10]), net(images[10:15])
    print(nn.TripletMarginLoss(margin=1.0, p=2)(anchor, positive, negative).item())
    print(
        F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=nn.PairwiseDistance()).item()
    )
    print(F.cosine_embedding_loss(anchor, positive, torch.tensor([1, -1, 1, 1, -1]), margin=0.2).item())
    points, net = images[:, 0, :6, :6].flatten(1), nn.Sequential(nn.Linear(36, 12), nn.PReLU(), nn.Linear(12, 4))
    optimizer = optim.RMSprop(net.parameters(), lr=1e-2, alpha=0.9, momentum=0.5)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    order = torch.argsort(labels, stable=True)
    for epoch in range(4):
        anchor, positive, negative = points[order][:20], points[order].roll(1, 0)[:20], points[order].flip(0)[:20]
        optimizer.zero_grad()
        loss = F.triplet_margin_loss(net(anchor), net(positive), net(negative), margin=0.5)
        (loss + 1e-3 * sum(p.pow(2).sum() for p in net.parameters())).backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        optimizer.step()
        plateau.step(loss.item())
        with torch.inference_mode():
            emb = F.normalize(net(points), p=2, dim=1)
            distance = torch.cdist(emb, emb).fill_diagonal_(float("inf"))
            votes = labels[distance.topk(3, largest=False).indices].mode(dim=1).values
            print(loss.item(), (votes == labels).float().mean().item(), optimizer.param_groups[0]["lr"])
    example = (images[:4], images[4:8])
