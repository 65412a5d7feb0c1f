"""Vector-quantised autoencoders: a straight-through estimator, a codebook by gradient and one by moving averages."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class VectorQuantizer(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost):
        super(VectorQuantizer, self).__init__()
        self._embedding_dim = embedding_dim
        self._num_embeddings = num_embeddings
        self._embedding = nn.Embedding(self._num_embeddings, self._embedding_dim)
        self._embedding.weight.data.uniform_(-1 / self._num_embeddings, 1 / self._num_embeddings)
        self._commitment_cost = commitment_cost

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        input_shape = inputs.shape
        flat_input = inputs.view(-1, self._embedding_dim)
        distances = (
            torch.sum(flat_input**2, dim=1, keepdim=True)
            + torch.sum(self._embedding.weight**2, dim=1)
            - 2 * torch.matmul(flat_input, self._embedding.weight.t())
        )
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._num_embeddings, device=inputs.device)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding.weight).view(input_shape)
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        q_latent_loss = F.mse_loss(quantized, inputs.detach())
        loss = q_latent_loss + self._commitment_cost * e_latent_loss
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity, encodings


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost, decay, epsilon=1e-5):
        super(VectorQuantizerEMA, self).__init__()
        self._embedding_dim = embedding_dim
        self._num_embeddings = num_embeddings
        self._embedding = nn.Embedding(self._num_embeddings, self._embedding_dim)
        self._embedding.weight.data.normal_()
        self._commitment_cost = commitment_cost
        self.register_buffer("_ema_cluster_size", torch.zeros(num_embeddings))
        self._ema_w = nn.Parameter(torch.Tensor(num_embeddings, self._embedding_dim))
        self._ema_w.data.normal_()
        self._decay = decay
        self._epsilon = epsilon

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        input_shape = inputs.shape
        flat_input = inputs.view(-1, self._embedding_dim)
        distances = (
            torch.sum(flat_input**2, dim=1, keepdim=True)
            + torch.sum(self._embedding.weight**2, dim=1)
            - 2 * torch.matmul(flat_input, self._embedding.weight.t())
        )
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._num_embeddings, device=inputs.device)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding.weight).view(input_shape)
        if self.training:
            self._ema_cluster_size = self._ema_cluster_size * self._decay + (1 - self._decay) * torch.sum(encodings, 0)
            n = torch.sum(self._ema_cluster_size.data)
            self._ema_cluster_size = (
                (self._ema_cluster_size + self._epsilon) / (n + self._num_embeddings * self._epsilon) * n
            )
            dw = torch.matmul(encodings.t(), flat_input)
            self._ema_w = nn.Parameter(self._ema_w * self._decay + (1 - self._decay) * dw)
            self._embedding.weight = nn.Parameter(self._ema_w / self._ema_cluster_size.unsqueeze(1))
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        loss = self._commitment_cost * e_latent_loss
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity, encodings


class Quantize(nn.Module):
    """The other usual form: buffers changed in place through `.data`, and a lookup in place of a product."""

    def __init__(self, dim, n_embed, decay=0.99, eps=1e-5):
        super().__init__()
        self.dim = dim
        self.n_embed = n_embed
        self.decay = decay
        self.eps = eps
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, input):
        flatten = input.reshape(-1, self.dim)
        dist = flatten.pow(2).sum(1, keepdim=True) - 2 * flatten @ self.embed + self.embed.pow(2).sum(0, keepdim=True)
        _, embed_ind = (-dist).max(1)
        embed_onehot = F.one_hot(embed_ind, self.n_embed).type(flatten.dtype)
        embed_ind = embed_ind.view(*input.shape[:-1])
        quantize = self.embed_code(embed_ind)
        if self.training:
            embed_onehot_sum = embed_onehot.sum(0)
            embed_sum = flatten.transpose(0, 1) @ embed_onehot
            self.cluster_size.data.mul_(self.decay).add_(embed_onehot_sum, alpha=1 - self.decay)
            self.embed_avg.data.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
            n = self.cluster_size.sum()
            cluster_size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
            embed_normalized = self.embed_avg / cluster_size.unsqueeze(0)
            self.embed.data.copy_(embed_normalized)
        diff = (quantize.detach() - input).pow(2).mean()
        quantize = input + (quantize - input).detach()
        return quantize, diff, embed_ind

    def embed_code(self, embed_id):
        return F.embedding(embed_id, self.embed.transpose(0, 1))


class Residual(nn.Module):
    def __init__(self, in_channels, num_hiddens, num_residual_hiddens):
        super(Residual, self).__init__()
        self._block = nn.Sequential(
            nn.ReLU(True),
            nn.Conv2d(in_channels, num_residual_hiddens, kernel_size=3, stride=1, padding=1, bias=False),
            nn.ReLU(True),
            nn.Conv2d(num_residual_hiddens, num_hiddens, kernel_size=1, stride=1, bias=False),
        )

    def forward(self, x):
        return x + self._block(x)


class Model(nn.Module):
    def __init__(self, num_hiddens, num_embeddings, embedding_dim, commitment_cost, decay=0):
        super(Model, self).__init__()
        self._encoder = nn.Sequential(
            nn.Conv2d(3, num_hiddens, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(num_hiddens, num_hiddens, 4, 2, 1),
            Residual(num_hiddens, num_hiddens, 8),
        )
        self._pre_vq_conv = nn.Conv2d(num_hiddens, embedding_dim, kernel_size=1, stride=1)
        if decay > 0.0:
            self._vq_vae = VectorQuantizerEMA(num_embeddings, embedding_dim, commitment_cost, decay)
        else:
            self._vq_vae = VectorQuantizer(num_embeddings, embedding_dim, commitment_cost)
        self._decoder = nn.Sequential(
            nn.ConvTranspose2d(embedding_dim, num_hiddens, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(num_hiddens, 3, 4, 2, 1),
        )

    def forward(self, x):
        z = self._pre_vq_conv(self._encoder(x))
        loss, quantized, perplexity, _ = self._vq_vae(z)
        return loss, self._decoder(quantized), perplexity


torch.manual_seed(6)
np.random.seed(6)
device = torch.device("cuda:0" if torch.cuda.device_count() > 1000 else "cpu")
data_variance = 0.9
images = torch.rand(16, 3, 8, 8) - 0.5
for decay in (0, 0.9):
    model = Model(12, 10, 4, 0.25, decay).to(device)
    optimizer = optim.Adam(model.parameters(), lr=3e-3, amsgrad=True)
    model.train()
    train_res_recon_error, train_res_perplexity = [], []
    for i in range(4):
        data = images[np.random.permutation(16)[:8]].to(device)
        optimizer.zero_grad()
        vq_loss, data_recon, perplexity = model(data)
        recon_error = F.mse_loss(data_recon, data) / data_variance
        loss = recon_error + vq_loss
        loss.backward()
        optimizer.step()
        train_res_recon_error.append(recon_error.item())
        train_res_perplexity.append(perplexity.item())
        print("%d iterations" % (i + 1), "vq %.5f" % vq_loss.item())
    print("recon_error: %.4f" % np.mean(train_res_recon_error), "perplexity: %.4f" % np.mean(train_res_perplexity))
quantize = Quantize(4, 6, decay=0.8)
latent = torch.randn(5, 3, 3, 4, requires_grad=True)
for _ in range(2):
    out, diff, ids = quantize(latent)
(out.sum() + diff).backward()
print(diff.item(), torch.bincount(ids.flatten(), minlength=6), latent.grad.flatten()[:4], quantize.embed[0])
codebook = nn.Embedding(7, 4)
decoder = nn.Sequential(
    nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1),
    nn.ReLU(inplace=True),
    nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"),
    nn.PixelShuffle(2),
)
optimizer = optim.Adam([*codebook.parameters(), *decoder.parameters()], lr=1e-2)
z, data = torch.randn(6, 2, 2, 4), torch.randn(6, 1, 8, 8).sigmoid()
for step in range(3):
    distances = torch.cdist(z.view(-1, 4), codebook.weight) ** 2
    idx = distances.argmin(dim=-1)
    z_q = codebook(idx).view(z.shape)
    recon = decoder((z + (z_q - z).detach()).permute(0, 3, 1, 2)).sigmoid()
    loss = torch.mean((z_q.detach() - z) ** 2) + 0.25 * torch.mean((z_q - z) ** 2) + F.mse_loss(recon, data)
    loss = loss / torch.var(data) + 1e-3 * F.binary_cross_entropy(recon, data, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    psnr = 10 * torch.log10(1.0 / F.mse_loss(recon, data))
    print(loss.item(), psnr.item(), torch.unique(idx).numel(), torch.equal(idx, torch.argmin(distances, dim=1)))
grid = recon.detach().mul(255).add_(0.5).clamp_(0, 255).permute(0, 2, 3, 1).to("cpu", torch.uint8).numpy()
print(grid.astype("int64").sum() // 100, grid.dtype.itemsize)
model.eval()
valid_originals = images[:4]
vq_output_eval = model._pre_vq_conv(model._encoder(valid_originals))
_, valid_quantize, _, encodings = model._vq_vae(vq_output_eval)
print(encodings.argmax(1)[:16], model._decoder(valid_quantize).std().item(), sorted(model.state_dict())[-3:])
example = valid_originals
