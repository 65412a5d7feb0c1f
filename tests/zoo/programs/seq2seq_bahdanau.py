"""Neural machine translation: a bidirectional GRU encoder, additive attention, teacher forcing, packed sequences."""

import math
import random
import re
import time
import unicodedata

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

SEED = 1234
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.backends.cudnn.deterministic = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

PAIRS = """i am cold .	j'ai froid .
i am happy .	je suis heureux .
he is big .	il est grand .
she is small .	elle est petite .
they are tired !	ils sont fatigués !
we are here .	nous sommes ici .
you are late ?	tu es en retard ?
i am at home .	je suis à la maison ."""


class Lang:
    def __init__(self, name):
        self.name = name
        self.word2index = {"<pad>": 0, "<sos>": 1, "<eos>": 2, "<unk>": 3}
        self.word2count = {}
        self.index2word = {v: k for k, v in self.word2index.items()}

    def addSentence(self, sentence):
        for word in sentence.split(" "):
            if word not in self.word2index:
                self.word2index[word] = len(self.word2index)
                self.word2count[word] = 1
                self.index2word[self.word2index[word]] = word
            else:
                self.word2count[word] = self.word2count.get(word, 0) + 1

    def __len__(self):
        return len(self.word2index)


def unicodeToAscii(s):
    return "".join(c for c in unicodedata.normalize("NFD", s) if unicodedata.category(c) != "Mn")


def normalizeString(s):
    s = unicodeToAscii(s.lower().strip())
    s = re.sub(r"([.!?])", r" \1", s)
    s = re.sub(r"[^a-zA-Z.!?]+", r" ", s)
    return s.strip()


class Translations(Dataset):
    def __init__(self, lines):
        self.pairs = [[normalizeString(s) for s in line.split("\t")] for line in lines]
        self.src, self.trg = Lang("eng"), Lang("fra")
        for a, b in self.pairs:
            self.src.addSentence(a)
            self.trg.addSentence(b)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b = self.pairs[i]
        to = lambda lang, s: torch.tensor([1] + [lang.word2index[w] for w in s.split(" ")] + [2], dtype=torch.long)
        return to(self.src, a), to(self.trg, b)


def collate_fn(batch):
    batch.sort(key=lambda pair: len(pair[0]), reverse=True)
    src, trg = zip(*batch)
    src_len = torch.as_tensor([len(s) for s in src])
    return pad_sequence(src), src_len, pad_sequence(list(trg), padding_value=0)


class Encoder(nn.Module):
    def __init__(self, input_dim, emb_dim, enc_hid_dim, dec_hid_dim, dropout):
        super().__init__()
        self.embedding = nn.Embedding(input_dim, emb_dim)
        self.rnn = nn.GRU(emb_dim, enc_hid_dim, bidirectional=True)
        self.fc = nn.Linear(enc_hid_dim * 2, dec_hid_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, src, src_len):
        # src = [src len, batch size]
        embedded = self.dropout(self.embedding(src))
        packed_embedded = nn.utils.rnn.pack_padded_sequence(embedded, src_len.to("cpu"))
        packed_outputs, hidden = self.rnn(packed_embedded)
        outputs, _ = nn.utils.rnn.pad_packed_sequence(packed_outputs)
        hidden = torch.tanh(self.fc(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)))
        # outputs = [src len, batch size, enc hid dim * 2], hidden = [batch size, dec hid dim]
        return outputs, hidden


class Attention(nn.Module):
    def __init__(self, enc_hid_dim, dec_hid_dim):
        super().__init__()
        self.attn = nn.Linear((enc_hid_dim * 2) + dec_hid_dim, dec_hid_dim)
        self.v = nn.Linear(dec_hid_dim, 1, bias=False)

    def forward(self, hidden, encoder_outputs, mask):
        src_len = encoder_outputs.shape[0]
        hidden = hidden.unsqueeze(1).repeat(1, src_len, 1)
        encoder_outputs = encoder_outputs.permute(1, 0, 2)
        energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=2)))
        attention = self.v(energy).squeeze(2)
        attention = attention.masked_fill(mask == 0, -1e10)
        return F.softmax(attention, dim=1)


class Decoder(nn.Module):
    def __init__(self, output_dim, emb_dim, enc_hid_dim, dec_hid_dim, dropout, attention):
        super().__init__()
        self.output_dim = output_dim
        self.attention = attention
        self.embedding = nn.Embedding(output_dim, emb_dim)
        self.rnn = nn.GRU((enc_hid_dim * 2) + emb_dim, dec_hid_dim)
        self.fc_out = nn.Linear((enc_hid_dim * 2) + dec_hid_dim + emb_dim, output_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input, hidden, encoder_outputs, mask):
        input = input.unsqueeze(0)
        embedded = self.dropout(self.embedding(input))
        a = self.attention(hidden, encoder_outputs, mask)
        a = a.unsqueeze(1)
        encoder_outputs = encoder_outputs.permute(1, 0, 2)
        weighted = torch.bmm(a, encoder_outputs)
        weighted = weighted.permute(1, 0, 2)
        rnn_input = torch.cat((embedded, weighted), dim=2)
        output, hidden = self.rnn(rnn_input, hidden.unsqueeze(0))
        assert (output == hidden).all()
        embedded = embedded.squeeze(0)
        output = output.squeeze(0)
        weighted = weighted.squeeze(0)
        prediction = self.fc_out(torch.cat((output, weighted, embedded), dim=1))
        return prediction, hidden.squeeze(0), a.squeeze(1)


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder, src_pad_idx, device):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_pad_idx = src_pad_idx
        self.device = device

    def create_mask(self, src):
        return (src != self.src_pad_idx).permute(1, 0)

    def forward(self, src, src_len, trg, teacher_forcing_ratio=0.5):
        batch_size = src.shape[1]
        trg_len = trg.shape[0]
        trg_vocab_size = self.decoder.output_dim
        # tensor to store decoder outputs
        outputs = torch.zeros(trg_len, batch_size, trg_vocab_size).to(self.device)
        encoder_outputs, hidden = self.encoder(src, src_len)
        input = trg[0, :]
        mask = self.create_mask(src)
        for t in range(1, trg_len):
            output, hidden, _ = self.decoder(input, hidden, encoder_outputs, mask)
            outputs[t] = output
            teacher_force = random.random() < teacher_forcing_ratio
            top1 = output.argmax(1)
            input = trg[t] if teacher_force else top1
        return outputs


def init_weights(m):
    for name, param in m.named_parameters():
        if "weight" in name:
            nn.init.normal_(param.data, mean=0, std=0.1)
        else:
            nn.init.constant_(param.data, 0)


def count_parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def train(model, iterator, optimizer, criterion, clip):
    model.train()
    epoch_loss = 0
    for i, batch in enumerate(iterator):
        src, src_len, trg = batch
        optimizer.zero_grad()
        output = model(src, src_len, trg)
        output_dim = output.shape[-1]
        output = output[1:].view(-1, output_dim)
        trg = trg[1:].view(-1)
        loss = criterion(output, trg)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        epoch_loss += loss.item()
    return epoch_loss / len(iterator)


def evaluate(model, iterator, criterion):
    model.eval()
    epoch_loss = 0
    with torch.no_grad():
        for i, (src, src_len, trg) in enumerate(iterator):
            output = model(src, src_len, trg, 0)  # turn off teacher forcing
            loss = criterion(output[1:].view(-1, output.shape[-1]), trg[1:].view(-1))
            epoch_loss += loss.item()
    return epoch_loss / len(iterator)


def epoch_time(start_time, end_time):
    elapsed_time = end_time - start_time
    elapsed_mins = int(elapsed_time / 60)
    return elapsed_mins, int(elapsed_time - (elapsed_mins * 60))


def translate_sentence(sentence, data, model, max_len=8):
    model.eval()
    indexes = [1] + [data.src.word2index.get(t, 3) for t in normalizeString(sentence).split()] + [2]
    src_tensor = torch.LongTensor(indexes).unsqueeze(1).to(device)
    src_len = torch.LongTensor([len(indexes)])
    with torch.no_grad():
        encoder_outputs, hidden = model.encoder(src_tensor, src_len)
    mask = model.create_mask(src_tensor)
    trg_indexes = [1]
    attentions = torch.zeros(max_len, 1, len(indexes)).to(device)
    for i in range(max_len):
        trg_tensor = torch.LongTensor([trg_indexes[-1]]).to(device)
        with torch.no_grad():
            output, hidden, attention = model.decoder(trg_tensor, hidden, encoder_outputs, mask)
        attentions[i] = attention
        pred_token = output.argmax(1).item()
        trg_indexes.append(pred_token)
        if pred_token == 2:
            break
    return [data.trg.index2word[i] for i in trg_indexes][1:], attentions[: len(trg_indexes) - 1]


def beam_search(model, src, src_len, k=3, steps=5):
    encoder_outputs, hidden = model.encoder(src, src_len)
    mask = model.create_mask(src)
    hidden, encoder_outputs, mask = hidden.repeat(k, 1), encoder_outputs.repeat(1, k, 1), mask.expand(k, -1)
    tokens = torch.empty(k, 1, dtype=torch.long, device=src.device).fill_(1)
    scores = torch.tensor([0.0] + [float("-inf")] * (k - 1))
    for _ in range(steps):
        logits, hidden, _ = model.decoder(tokens[:, -1], hidden, encoder_outputs, mask)
        total = scores[:, None] + F.log_softmax(logits, -1)
        scores, flat = total.view(-1).topk(k)
        beam, word = torch.div(flat, logits.size(-1), rounding_mode="floor"), flat % logits.size(-1)
        tokens = torch.cat([tokens[beam], word[:, None]], dim=1)
        hidden = hidden.index_select(0, beam)
    return tokens, scores


class Forced(nn.Module):
    """What is deployed: encoder and one decoding step."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, embedded, token):
        embedded = embedded.transpose(0, 1)
        outputs, hidden = self.model.encoder.rnn(embedded)
        hidden = torch.tanh(self.model.encoder.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)))
        mask = torch.ones(embedded.size(1), embedded.size(0), dtype=torch.bool)
        return self.model.decoder(token, hidden, outputs, mask)


data = Translations(PAIRS.split("\n"))
iterator = DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate_fn)
attn = Attention(8, 8)
enc = Encoder(len(data.src), 8, 8, 8, 0.2)
dec = Decoder(len(data.trg), 8, 8, 8, 0.2, attn)
model = Seq2Seq(enc, dec, 0, device).to(device)
model.apply(init_weights)
print(f"The model has {count_parameters(model):,} trainable parameters")
optimizer = optim.Adam(model.parameters(), lr=2e-2)
criterion = nn.CrossEntropyLoss(ignore_index=0)
best_valid_loss = float("inf")
for epoch in range(6):
    start_time = time.time()
    train_loss = train(model, iterator, optimizer, criterion, 1)
    valid_loss = evaluate(model, iterator, criterion)
    mins, secs = epoch_time(start_time, time.time())
    if valid_loss < best_valid_loss:
        best_valid_loss = valid_loss
        torch.save(model.state_dict(), "tut4-model.pt")
    print(f"\tTrain Loss: {train_loss:.3f} | Train PPL: {math.exp(train_loss):7.3f}")
    print(f"\t Val. Loss: {valid_loss:.3f} |  Val. PPL: {math.exp(valid_loss):7.3f}")
model.load_state_dict(torch.load("tut4-model.pt"))
for sentence, _ in data.pairs[:3]:
    translation, attention = translate_sentence(sentence, data, model)
    print(sentence, "->", " ".join(translation), attention.squeeze(1).sum(1).tolist())
with torch.no_grad():
    src, src_len, trg = collate_fn([data[0]])
    tokens, scores = beam_search(model, src, src_len)
    print(tokens.tolist(), scores.tolist())
    output = model(src, src_len, trg, 0)[1:].view(-1, len(data.trg))
    print(nn.NLLLoss(ignore_index=0)(F.log_softmax(output, dim=-1), trg[1:].view(-1)).item())
    unsorted = pack_padded_sequence(
        torch.randn(3, 5, 2), torch.tensor([2, 5, 3]), batch_first=True, enforce_sorted=False
    )
    print(unsorted.batch_sizes, unsorted.sorted_indices, unsorted.unsorted_indices, unsorted.data.shape)
    padded, lengths = pad_packed_sequence(unsorted, batch_first=True, padding_value=-1.0, total_length=6)
    print(padded[0], lengths)
model, example = Forced(model).eval(), (torch.randn(2, 5, 8), torch.tensor([1, 4]))
