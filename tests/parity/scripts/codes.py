"""VQ-VAE: nearest codes, straight-through, EMA codebook, transposed convolutions with output_padding, PixelShuffle."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost, decay=0.9, epsilon=1e-5):
        super().__init__()
        self._embedding_dim, self._num_embeddings = embedding_dim, num_embeddings
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)
        self._embedding.weight.data.uniform_(-1 / num_embeddings, 1 / num_embeddings)
        self._commitment_cost = commitment_cost
        self.register_buffer("_ema_cluster_size", torch.zeros(num_embeddings))
        self._ema_w = nn.Parameter(torch.Tensor(num_embeddings, embedding_dim))
        self._ema_w.data.normal_()
        self._decay, self._epsilon = decay, epsilon

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


class VectorQuantizer(nn.Module):
    def __init__(self, n_e, e_dim, beta):
        super().__init__()
        self.n_e, self.e_dim, self.beta = n_e, e_dim, beta
        self.embedding = nn.Embedding(n_e, e_dim)

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        z_flattened = z.view(-1, self.e_dim)
        d = torch.cdist(z_flattened, self.embedding.weight) ** 2
        idx = d.argmin(dim=-1)
        z_q = self.embedding(idx).view(z.shape)
        loss = torch.mean((z_q.detach() - z) ** 2) + self.beta * torch.mean((z_q - z.detach()) ** 2)
        z_q = z + (z_q - z).detach()
        used = torch.unique(idx)
        return z_q.permute(0, 3, 1, 2), loss, used.numel(), torch.bincount(idx, minlength=self.n_e)


class Residual(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self._block = nn.Sequential(
            nn.ReLU(True), nn.Conv2d(i, h, 3, 1, 1, bias=False), nn.ReLU(True), nn.Conv2d(h, i, 1, 1, bias=False)
        )

    def forward(self, x):
        return x + self._block(x)


class Model(nn.Module):
    def __init__(self, ema):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, stride=2, padding=1),
            Residual(8, 4),
            nn.Conv2d(8, 4, 1),
        )
        self.vq = VectorQuantizerEMA(7, 4, 0.25) if ema else VectorQuantizer(7, 4, 0.25)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"),
            nn.PixelShuffle(2),
        )

    def forward(self, x):
        z = self.encoder(x)
        out = self.vq(z)
        loss, quantized, perplexity = (
            (out[0], out[1], out[2]) if isinstance(self.vq, VectorQuantizerEMA) else (out[1], out[0], out[2])
        )
        return loss, self.decoder(quantized), perplexity, out[3]


def psnr(a, b):
    return 10 * torch.log10(1.0 / F.mse_loss(a, b))


def main(fill, numbers):
    data = torch.from_numpy(numbers(6, 1, 8, 8)).sigmoid()
    variance = torch.var(data / 255.0 * 255.0).item()
    trace = []
    for ema in (True, False):
        model = fill(Model(ema))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True)
        model.train()
        for i in range(4):
            optimizer.zero_grad()
            vq_loss, recon, perplexity, codes = model(data)
            recon_error = F.mse_loss(recon, data) / variance
            loss = recon_error + vq_loss
            loss.backward()
            optimizer.step()
            trace += [recon_error.item(), float(perplexity), codes.max().item(), psnr(recon, data).item()]
        model.eval()
        with torch.no_grad():
            grid = (
                model(data)[1]
                .clamp(0, 1)
                .mul(255)
                .add_(0.5)
                .clamp_(0, 255)
                .permute(0, 2, 3, 1)
                .to("cpu", torch.uint8)
                .numpy()
            )
        trace += [float(grid.astype("int64").sum() // 100), float(grid.dtype.itemsize)]
    return trace
