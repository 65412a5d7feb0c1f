"""Skip-gram with negative sampling on a toy corpus: subsampling, a sampling table, sparse gradients, SparseAdam."""

import random
from collections import Counter, deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn import init
from torch.utils.data import DataLoader, Dataset

np.random.seed(12345)


class DataReader:
    NEGATIVE_TABLE_SIZE = 500

    def __init__(self, sentences, min_count):
        self.negatives, self.discards, self.negpos = [], [], 0
        self.word2id, self.id2word, self.word_frequency = dict(), dict(), dict()
        counts = Counter(w for s in sentences for w in s)
        wid = 0
        for w, c in sorted(counts.items()):
            if c < min_count:
                continue
            self.word2id[w], self.id2word[wid], self.word_frequency[wid] = wid, w, c
            wid += 1
        self.sentences = sentences
        self.token_count = sum(counts.values())
        self.init_table_negatives()
        self.init_table_discards()

    def init_table_discards(self):
        t = 0.05
        f = np.array(list(self.word_frequency.values())) / self.token_count
        self.discards = np.sqrt(t / f) + (t / f)

    def init_table_negatives(self):
        pow_frequency = np.array(list(self.word_frequency.values())) ** 0.5
        ratio = pow_frequency / sum(pow_frequency)
        count = np.round(ratio * DataReader.NEGATIVE_TABLE_SIZE)
        for wid, c in enumerate(count):
            self.negatives += [wid] * int(c)
        self.negatives = np.array(self.negatives)
        np.random.shuffle(self.negatives)

    def get_negatives(self, target, size):
        response = self.negatives[self.negpos : self.negpos + size]
        self.negpos = (self.negpos + size) % len(self.negatives)
        if len(response) != size:
            return np.concatenate((response, self.negatives[0 : self.negpos]))
        return response


class Word2vecDataset(Dataset):
    def __init__(self, data, window_size):
        self.data, self.window_size = data, window_size

    def __len__(self):
        return len(self.data.sentences)

    def __getitem__(self, idx):
        words = self.data.sentences[idx]
        word_ids = [
            self.data.word2id[w]
            for w in words
            if w in self.data.word2id and np.random.rand() < self.data.discards[self.data.word2id[w]]
        ]
        boundary = np.random.randint(1, self.window_size)
        return [
            (u, v, self.data.get_negatives(v, 5))
            for i, u in enumerate(word_ids)
            for j, v in enumerate(word_ids[max(i - boundary, 0) : i + boundary])
            if u != v
        ]

    @staticmethod
    def collate(batches):
        all_u = [u for batch in batches for u, _, _ in batch if len(batch) > 0]
        all_v = [v for batch in batches for _, v, _ in batch if len(batch) > 0]
        all_neg_v = [neg_v for batch in batches for _, _, neg_v in batch if len(batch) > 0]
        return torch.LongTensor(all_u), torch.LongTensor(all_v), torch.LongTensor(np.array(all_neg_v))


class SkipGramModel(nn.Module):
    def __init__(self, emb_size, emb_dimension):
        super(SkipGramModel, self).__init__()
        self.emb_size = emb_size
        self.emb_dimension = emb_dimension
        self.u_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=True)
        self.v_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=True)
        initrange = 1.0 / self.emb_dimension
        init.uniform_(self.u_embeddings.weight.data, -initrange, initrange)
        init.constant_(self.v_embeddings.weight.data, 0)

    def forward(self, pos_u, pos_v, neg_v):
        emb_u = self.u_embeddings(pos_u)
        emb_v = self.v_embeddings(pos_v)
        emb_neg_v = self.v_embeddings(neg_v)
        score = torch.sum(torch.mul(emb_u, emb_v), dim=1)
        score = torch.clamp(score, max=10, min=-10)
        score = -F.logsigmoid(score)
        neg_score = torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze()
        neg_score = torch.clamp(neg_score, max=10, min=-10)
        neg_score = -torch.sum(F.logsigmoid(-neg_score), dim=1)
        return torch.mean(score + neg_score)

    def save_embedding(self, id2word, file_name):
        embedding = self.u_embeddings.weight.cpu().data.numpy()
        with open(file_name, "w") as f:
            f.write("%d %d\n" % (len(id2word), self.emb_dimension))
            for wid, w in id2word.items():
                f.write("%s %s\n" % (w, " ".join(map(lambda x: "%.4f" % x, embedding[wid]))))


class CBOW(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embeddings = nn.EmbeddingBag(vocab, dim, mode="mean", max_norm=1.0)
        self.linear = nn.Linear(dim, vocab, bias=False)

    def forward(self, context):
        return F.log_softmax(self.linear(self.embeddings(context)), dim=-1)


random.seed(1)
torch.manual_seed(1)
topics = [["sea", "boat", "fish", "net"], ["bread", "oven", "salt", "flour"], ["road", "car", "wheel", "fuel"]]
sentences = [[random.choice(random.choice(topics[i % 3 :] or topics)) for _ in range(9)] for i in range(30)]
data = DataReader(sentences, 2)
dataloader = DataLoader(
    Word2vecDataset(data, 4), batch_size=8, shuffle=True, num_workers=0, collate_fn=Word2vecDataset.collate
)
skip_gram_model = SkipGramModel(len(data.word2id), 6)
history = deque(maxlen=3)
for iteration in range(3):
    optimizer = optim.SparseAdam(list(skip_gram_model.parameters()), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(dataloader))
    running_loss = 0.0
    for i, sample_batched in enumerate(dataloader):
        if len(sample_batched[0]) > 1:
            pos_u, pos_v, neg_v = (t.to("cpu") for t in sample_batched)
            optimizer.zero_grad()
            loss = skip_gram_model.forward(pos_u, pos_v, neg_v)
            loss.backward()
            optimizer.step()
            scheduler.step()
            running_loss = running_loss * 0.9 + loss.item() * 0.1
    history.append(round(running_loss, 4))
    print(
        "Iteration",
        iteration + 1,
        "Loss:",
        running_loss,
        "pairs",
        len(pos_u),
        "sparse",
        skip_gram_model.u_embeddings.weight.grad.is_sparse,
    )
print(list(history))
skip_gram_model.save_embedding(data.id2word, "out.vec")
rows = [line.split() for line in open("out.vec").readlines()[1:4]]
print([(r[0], [float(v) for v in r[1:]]) for r in rows])
weights = F.normalize(skip_gram_model.u_embeddings.weight.detach(), dim=1)
scores, nearest = torch.topk(weights @ weights.t() - 2 * torch.eye(len(weights)), k=2, dim=1)
print(scores.sum().item(), F.cosine_similarity(weights[:1], weights[1:4]))
model = CBOW(len(data.word2id), 6)
criterion = nn.NLLLoss()
opt = optim.Adagrad(model.parameters(), lr=0.1)
ids = torch.tensor([[data.word2id[w] for w in s] for s in sentences[:10]])
for epoch in range(4):
    context, target = torch.cat([ids[:, 2:4], ids[:, 5:7]], dim=1), ids[:, 4]
    model.zero_grad()
    loss = criterion(model(context), target)
    loss.backward()
    opt.step()
    print("cbow", epoch, loss.item(), model.embeddings.weight.norm(dim=1).max().item())
example = context
