"""Character-level language model: LSTM cells by hand, truncated backpropagation, sampling with temperature."""

import argparse
import string
from collections import Counter

import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.nn import functional as F

TEXT = (
    "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs! "
    "how vexingly quick daft zebras jump; sphinx of black quartz, judge my vow. "
) * 6

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument(
    "--rnn-type",
    choices=["lstm", "gru", "rnn", "cell", "layernorm"],
    nargs="*",
    default=["lstm", "gru", "rnn", "cell", "layernorm"],
)
parser.add_argument("--hidden-size", type=int, default=24)
parser.add_argument("--n-layers", type=int, default=2)
parser.add_argument("--seq-len", type=int, default=16)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--tied", action="store_true", default=True)
args = parser.parse_args()


class Dictionary(object):
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


class LayerNormLSTMCell(nn.RNNCellBase):
    """Layer normalization of gates and cell; the four gates are one product."""

    def __init__(self, input_size, hidden_size, bias=True):
        super(LayerNormLSTMCell, self).__init__(input_size, hidden_size, bias, num_chunks=4)
        self.norm_ih, self.norm_hh = nn.LayerNorm(4 * hidden_size), nn.LayerNorm(4 * hidden_size)
        self.norm_c = nn.LayerNorm(hidden_size)

    def forward(self, input, hx=None):
        if hx is None:
            hx = (input.new_zeros(input.size(0), self.hidden_size, requires_grad=False),) * 2
        h, c = hx
        gates = self.norm_ih(F.linear(input, self.weight_ih, self.bias_ih)) + self.norm_hh(
            F.linear(h, self.weight_hh, self.bias_hh)
        )
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.norm_c(c)), c


class CellLSTM(nn.Module):
    def __init__(self, cell, input_size, hidden_size, num_layers, dropout):
        super().__init__()
        self.cells = nn.ModuleList(
            [cell(input_size if i == 0 else hidden_size, hidden_size) for i in range(num_layers)]
        )
        self.drop = nn.Dropout(dropout)
        self.num_layers, self.hidden_size = num_layers, hidden_size

    def forward(self, input, state):
        h, c = (list(s.unbind(0)) for s in state)
        outputs = []
        for x in input.unbind(0):
            for i, cell in enumerate(self.cells):
                h[i], c[i] = cell(x, (h[i], c[i]))
                x = self.drop(h[i]) if i < self.num_layers - 1 else h[i]
            outputs.append(x)
        return torch.stack(outputs), (torch.stack(h), torch.stack(c))


class RNNModel(nn.Module):
    """Container module with an encoder, a recurrent module, and a decoder."""

    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.5, tie_weights=False):
        super(RNNModel, self).__init__()
        self.ntoken = ntoken
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        if rnn_type in ["lstm", "gru"]:
            self.rnn = getattr(nn, rnn_type.upper())(ninp, nhid, nlayers, dropout=dropout)
        elif rnn_type == "rnn":
            self.rnn = nn.RNN(ninp, nhid, nlayers, nonlinearity="relu", dropout=dropout)
        else:
            self.rnn = CellLSTM(nn.LSTMCell if rnn_type == "cell" else LayerNormLSTMCell, ninp, nhid, nlayers, dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError("When using the tied flag, nhid must be equal to emsize")
            self.decoder.weight = self.encoder.weight
        self.init_weights()
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)
        if isinstance(self.rnn, nn.LSTM):
            for names in self.rnn._all_weights:  # forget gates start open
                for name in filter(lambda n: "bias" in n, names):
                    bias = getattr(self.rnn, name)
                    n = bias.size(0)
                    bias.data[n // 4 : n // 2].fill_(1.0)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        output = self.drop(output)
        decoded = self.decoder(output)
        decoded = decoded.view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.rnn_type in ("lstm", "cell", "layernorm"):
            return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))
        else:
            return weight.new_zeros(self.nlayers, bsz, self.nhid)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    # Trim off any extra elements that wouldn't cleanly fit (remainders).
    data = data.narrow(0, 0, nbatch * bsz)
    data = data.view(bsz, -1).t().contiguous()
    return data.to(device)


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    else:
        return tuple(repackage_hidden(v) for v in h)


def get_batch(source, i):
    seq_len = min(args.seq_len, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def generate(model, prime_str="th", predict_len=24, temperature=0.8, top_k=None):
    model.eval()
    hidden = model.init_hidden(1)
    prime_input = Variable(torch.LongTensor([corpus.word2idx[c] for c in prime_str]).unsqueeze(1))
    predicted = prime_str
    with torch.no_grad():
        _, hidden = model(prime_input[:-1], hidden)
        inp = prime_input[-1:]
        for p in range(predict_len):
            output, hidden = model(inp, hidden)
            output_dist = output.data.view(-1).div(temperature).exp()
            if top_k is not None:
                kth = torch.topk(output_dist, top_k)[0][-1]
                output_dist[output_dist < kth] = 0.0
            top_i = torch.multinomial(output_dist, 1)[0]
            predicted += corpus.idx2word[top_i]
            inp.fill_(top_i)
    return predicted


device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
corpus = Dictionary()
ids = torch.tensor([corpus.add_word(c) for c in TEXT]).type(torch.int64)
assert set(corpus.word2idx) <= set(string.printable)
print(len(corpus), Counter(TEXT).most_common(3))

for rnn_type in args.rnn_type:
    torch.manual_seed(1111)
    train_data = batchify(ids, args.batch_size)
    model = RNNModel(
        rnn_type, len(corpus), args.hidden_size, args.hidden_size, args.n_layers, args.dropout, args.tied
    ).to(device)
    criterion = nn.NLLLoss()
    lr = 1.0
    model.train()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, 8 * args.seq_len, args.seq_len)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        print(
            "| {:>10} | {:3d} batches | lr {:02.2f} | loss {:5.3f} | bpc {:8.4f}".format(
                rnn_type, batch, lr, loss.item(), loss.item() / 0.6931
            )
        )
        if batch == 5:
            lr /= 4.0
    with open("model_%s.pt" % rnn_type, "wb") as f:
        torch.save(model.state_dict(), f)
    with open("model_%s.pt" % rnn_type, "rb") as f:
        model.load_state_dict(torch.load(f))
    if rnn_type in ["lstm", "gru", "rnn"]:
        model.rnn.flatten_parameters()
    print(generate(model), "|", generate(model, "qu", temperature=0.5, top_k=3))
    print(sorted(k for k, _ in model.named_parameters()))


class BatchFirst(nn.Module):
    """What is deployed: one call takes a batch of pieces of text, and starts from no state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input):
        output, (h, c) = self.model(input.t(), self.model.init_hidden(input.size(0)))
        return output, h.transpose(0, 1), c.transpose(0, 1)


model, example = BatchFirst(model), train_data[:5].t()
