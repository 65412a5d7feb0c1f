"""Temporal convolutional networks: the adding problem, sequential pixels, copying memory."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable
from torch.nn.utils import remove_weight_norm, weight_norm


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super(Chomp1d, self).__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, stride, dilation, padding, dropout=0.2):
        super(TemporalBlock, self).__init__()
        self.conv1 = weight_norm(
            nn.Conv1d(n_inputs, n_outputs, kernel_size, stride=stride, padding=padding, dilation=dilation)
        )
        self.chomp1 = Chomp1d(padding)
        self.relu1 = nn.ReLU()
        self.dropout1 = nn.Dropout(dropout)

        self.conv2 = weight_norm(
            nn.Conv1d(n_outputs, n_outputs, kernel_size, stride=stride, padding=padding, dilation=dilation)
        )
        self.chomp2 = Chomp1d(padding)
        self.relu2 = nn.ReLU()
        self.dropout2 = nn.Dropout(dropout)

        self.net = nn.Sequential(
            self.conv1, self.chomp1, self.relu1, self.dropout1, self.conv2, self.chomp2, self.relu2, self.dropout2
        )
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()
        self.init_weights()

    def init_weights(self):
        self.conv1.weight.data.normal_(0, 0.01)
        self.conv2.weight.data.normal_(0, 0.01)
        if self.downsample is not None:
            self.downsample.weight.data.normal_(0, 0.01)

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


class TemporalConvNet(nn.Module):
    def __init__(self, num_inputs, num_channels, kernel_size=2, dropout=0.2):
        super(TemporalConvNet, self).__init__()
        layers = []
        num_levels = len(num_channels)
        for i in range(num_levels):
            dilation_size = 2**i
            in_channels = num_inputs if i == 0 else num_channels[i - 1]
            out_channels = num_channels[i]
            layers += [
                TemporalBlock(
                    in_channels,
                    out_channels,
                    kernel_size,
                    stride=1,
                    dilation=dilation_size,
                    padding=(kernel_size - 1) * dilation_size,
                    dropout=dropout,
                )
            ]
        self.network = nn.Sequential(*layers)

    def forward(self, x):
        return self.network(x)


class TCN(nn.Module):
    def __init__(self, input_size, output_size, num_channels, kernel_size, dropout, last=True):
        super(TCN, self).__init__()
        self.tcn = TemporalConvNet(input_size, num_channels, kernel_size=kernel_size, dropout=dropout)
        self.linear = nn.Linear(num_channels[-1], output_size)
        self.last = last
        self.linear.weight.data.normal_(0, 0.01)

    def forward(self, x):
        y1 = self.tcn(x)
        return self.linear(y1[:, :, -1]) if self.last else self.linear(y1.transpose(1, 2))


def adding_data(N, seq_length):
    X_num = torch.rand([N, 1, seq_length])
    X_mask = torch.zeros([N, 1, seq_length])
    Y = torch.zeros([N, 1])
    for i in range(N):
        positions = np.random.choice(seq_length, size=2, replace=False)
        X_mask[i, 0, positions[0]] = 1
        X_mask[i, 0, positions[1]] = 1
        Y[i, 0] = X_num[i, 0, positions[0]] + X_num[i, 0, positions[1]]
    X = torch.cat((X_num, X_mask), dim=1)
    return Variable(X), Variable(Y)


def copying_data(T, mem_length, b_size):
    seq = torch.from_numpy(np.random.randint(1, 9, size=(b_size, mem_length))).float()
    zeros = torch.zeros((b_size, T))
    marker = 9 * torch.ones((b_size, mem_length + 1))
    placeholders = torch.zeros((b_size, mem_length))
    x = torch.cat((seq, zeros[:, :-1], marker), 1)
    y = torch.cat((placeholders, zeros, seq), 1).long()
    return x, y


parser = argparse.ArgumentParser(description="Sequence Modeling - The Adding Problem")
parser.add_argument("--batch_size", type=int, default=8, metavar="N")
parser.add_argument("--cuda", action="store_false", help="use CUDA (default: True)")
parser.add_argument("--clip", type=float, default=0.5, help="gradient clip, -1 means no clip (default: -1)")
parser.add_argument("--ksize", type=int, default=3)
parser.add_argument("--levels", type=int, default=3)
parser.add_argument("--seq_len", type=int, default=20)
parser.add_argument("--nhid", type=int, default=8)
parser.add_argument("--lr", type=float, default=4e-2)
parser.add_argument("--optim", type=str, default="Adam")
parser.add_argument("--seed", type=int, default=1111)
args = parser.parse_args()

torch.manual_seed(args.seed)
np.random.seed(args.seed)
if torch.cuda.is_available():
    if not args.cuda:
        print("WARNING: You have a CUDA device, so you should probably run with --cuda")

print("Producing data...")
X_train, Y_train = adding_data(48, args.seq_len)
X_test, Y_test = adding_data(16, args.seq_len)
model = TCN(2, 1, [args.nhid] * args.levels, kernel_size=args.ksize, dropout=0.1)
if args.cuda and torch.cuda.is_available():
    model.cuda()
    X_train, Y_train = X_train.cuda(), Y_train.cuda()
lr = args.lr
optimizer = getattr(optim, args.optim)(model.parameters(), lr=lr)
print(sorted(n for n, _ in model.named_parameters())[:6])

for epoch in range(1, 3):
    model.train()
    batch_idx = 1
    total_loss = 0
    for i in range(0, X_train.size()[0], args.batch_size):
        if i + args.batch_size > X_train.size()[0]:
            x, y = X_train[i:], Y_train[i:]
        else:
            x, y = X_train[i : (i + args.batch_size)], Y_train[i : (i + args.batch_size)]
        optimizer.zero_grad()
        output = model(x)
        loss = F.mse_loss(output, y)
        loss.backward()
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        batch_idx += 1
        total_loss += loss.item()
        if batch_idx % 2 == 0:
            cur_loss = total_loss / 2
            processed = min(i + args.batch_size, X_train.size()[0])
            print(
                "Train Epoch: {:2d} [{:6d}/{:6d} ({:.0f}%)]\tLearning rate: {:.4f}\tLoss: {:.6f}".format(
                    epoch, processed, X_train.size()[0], 100.0 * processed / X_train.size()[0], lr, cur_loss
                )
            )
            total_loss = 0
    model.eval()
    with torch.no_grad():
        test_loss = F.mse_loss(model(X_test), Y_test)
        print("\nTest set: Average loss: {:.6f}\n".format(test_loss.item()))
    if epoch == 1:
        lr /= 10
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr

# the whole model is pickled by this repository; the state is what others do
torch.save(model.state_dict(), "tcn.pt")
same = TCN(2, 1, [args.nhid] * args.levels, kernel_size=args.ksize, dropout=0.1)
same.load_state_dict(torch.load("tcn.pt"))
same.eval()
print((same(X_test) - model(X_test)).abs().max().item())
for block in same.tcn.network:
    for conv in (block.conv1, block.conv2):
        remove_weight_norm(conv)
print([n for n, _ in same.named_parameters()], torch.allclose(same(X_test), model(X_test), atol=1e-6))

copy = TCN(1, 10, [args.nhid] * 2, kernel_size=4, dropout=0.0, last=False)
optimizer = optim.RMSprop(copy.parameters(), lr=5e-3)
x, y = copying_data(6, 4, 8)
criterion = nn.CrossEntropyLoss()
for step in range(4):
    optimizer.zero_grad()
    out = copy(x.unsqueeze(1).contiguous())
    loss = criterion(out.view(-1, 10), y.view(-1))
    pred = out.view(-1, 10).data.max(1, keepdim=True)[1]
    correct = pred.eq(y.data.view_as(pred)).cpu().sum()
    counter = out.view(-1, 10).size(0)
    loss.backward()
    optimizer.step()
    print("| loss {:5.8f} | accuracy {:5.4f}".format(loss.item(), 100.0 * correct / counter))
example = X_test
