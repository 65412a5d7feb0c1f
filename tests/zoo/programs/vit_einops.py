import torch
import torch.nn.functional as F
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from torch import einsum, nn

# helpers


def pair(t):
    return t if isinstance(t, tuple) else (t, t)


def posemb_sincos_2d(h, w, dim, temperature: int = 10000, dtype=torch.float32):
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    assert (dim % 4) == 0, "feature dimension must be multiple of 4 for sincos emb"
    omega = torch.arange(dim // 4) / (dim // 4 - 1)
    omega = 1.0 / (temperature**omega)
    y = y.flatten()[:, None] * omega[None, :]
    x = x.flatten()[:, None] * omega[None, :]
    pe = torch.cat((x.sin(), x.cos(), y.sin(), y.cos()), dim=1)
    return pe.type(dtype)


# classes


class PreNorm(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fn = fn

    def forward(self, x, **kwargs):
        return self.fn(self.norm(x), **kwargs)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden_dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x):
        return self.net(x)


class LSA(nn.Module):
    """Locality self attention: a learnt temperature, and no token looks at itself."""

    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads = heads
        self.temperature = nn.Parameter(torch.log(torch.tensor(dim_head**-0.5)))
        self.attend = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(dropout))

    def forward(self, x):
        b, n, _, h = *x.shape, self.heads
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=h), qkv)
        dots = einsum("b h i d, b h j d -> b h i j", q, k) * self.temperature.exp()
        mask = torch.eye(dots.shape[-1], device=dots.device, dtype=torch.bool)
        mask_value = -torch.finfo(dots.dtype).max
        dots = dots.masked_fill(mask, mask_value)
        attn = self.dropout(self.attend(dots))
        out = torch.einsum("bhij,bhjd->bhid", attn, v)
        out = rearrange(out, "b h n d -> b n (h d)")
        return self.to_out(out)


class SPT(nn.Module):
    """Shifted patch tokenization."""

    def __init__(self, *, dim, patch_size, channels=3):
        super().__init__()
        patch_dim = patch_size * patch_size * 5 * channels
        self.to_patch_tokens = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=patch_size, p2=patch_size),
            nn.LayerNorm(patch_dim),
            nn.Linear(patch_dim, dim),
        )

    def forward(self, x):
        shifts = ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))
        shifted_x = list(map(lambda shift: F.pad(x, shift), shifts))
        x_with_shifts = torch.cat((x, *shifted_x), dim=1)
        return self.to_patch_tokens(x_with_shifts)


class Transformer(nn.Module):
    def __init__(self, dim, depth, heads, dim_head, mlp_dim, dropout=0.0):
        super().__init__()
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(
                nn.ModuleList(
                    [
                        PreNorm(dim, LSA(dim, heads=heads, dim_head=dim_head, dropout=dropout)),
                        PreNorm(dim, FeedForward(dim, mlp_dim, dropout=dropout)),
                    ]
                )
            )

    def forward(self, x):
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return x


class ViT(nn.Module):
    def __init__(
        self,
        *,
        image_size,
        patch_size,
        num_classes,
        dim,
        depth,
        heads,
        mlp_dim,
        pool="cls",
        channels=3,
        dim_head=8,
        dropout=0.0,
        emb_dropout=0.0,
        num_registers=2,
    ):
        super().__init__()
        image_height, image_width = pair(image_size)
        patch_height, patch_width = pair(patch_size)
        assert image_height % patch_height == 0 and image_width % patch_width == 0, (
            "Image dimensions must be divisible by the patch size."
        )
        num_patches = (image_height // patch_height) * (image_width // patch_width)
        assert pool in {"cls", "mean"}, "pool type must be either cls (cls token) or mean (mean pooling)"
        self.to_patch_embedding = SPT(dim=dim, patch_size=patch_size, channels=channels)
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim) * 0.02)
        self.register_buffer("sincos", posemb_sincos_2d(image_height // patch_height, image_width // patch_width, dim))
        self.cls_token = nn.Parameter(torch.randn(dim))
        self.registers = nn.Parameter(torch.randn(num_registers, dim) * 0.02)
        self.dropout = nn.Dropout(emb_dropout)
        self.transformer = Transformer(dim, depth, heads, dim_head, mlp_dim, dropout)
        self.pool = pool
        self.to_latent = nn.Identity()
        self.mlp_head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_classes))
        self.to_pixels = nn.Sequential(
            nn.Linear(dim, patch_height * patch_width * channels),
            Rearrange(
                "b (h w) (p1 p2 c) -> b c (h p1) (w p2)", h=image_height // patch_height, p1=patch_height, c=channels
            ),
        )

    def forward(self, img, reconstruct=False):
        x = self.to_patch_embedding(img)
        b, n, _ = x.shape
        x = x + self.sincos
        cls_tokens = repeat(self.cls_token, "d -> b 1 d", b=b)
        x = torch.cat((cls_tokens, x), dim=1)
        x += self.pos_embedding[:, : (n + 1)]
        x = self.dropout(x)
        r = repeat(self.registers, "n d -> b n d", b=b)
        x = torch.cat((x, r), dim=1)
        x = self.transformer(x)
        x, _ = torch.split(x, [n + 1, r.shape[1]], dim=1)
        if reconstruct:
            return self.to_pixels(x[:, 1:])
        x = x.mean(dim=1) if self.pool == "mean" else x[:, 0]
        x = self.to_latent(x)
        return self.mlp_head(x)


# training

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

v = ViT(
    image_size=16, patch_size=4, num_classes=4, dim=16, depth=2, heads=2, mlp_dim=32, dropout=0.1, emb_dropout=0.1
).to(device)
print(v)

img = torch.randn(8, 3, 16, 16, device=device)
target = reduce(img, "b c h w -> b", "mean").argsort().argsort() // 2
opt = torch.optim.Adam(v.parameters(), lr=3e-3)
for i in range(6):
    loss = F.cross_entropy(v(img), target)
    rec = F.mse_loss(v(img, reconstruct=True), img)
    (loss + 0.5 * rec).backward()
    if i % 2 == 1:  # accumulates over two steps
        opt.step()
        opt.zero_grad()
    print(f"{i}: {loss.item():.4f} {rec.item():.4f}")

# masked patches, in the manner of MAE
patches = rearrange(img, "b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=4, p2=4)
batch, num_patches, *_ = patches.shape
num_masked = int(0.75 * num_patches)
rand_indices = torch.rand(batch, num_patches, device=device).argsort(dim=-1)
masked_indices, unmasked_indices = rand_indices[:, :num_masked], rand_indices[:, num_masked:]
batch_range = torch.arange(batch, device=device)[:, None]
tokens = patches[batch_range, unmasked_indices]
print(tokens.shape, reduce(tokens, "b n (p c) -> c", "max", c=3), masked_indices[0].tolist())
decoder_tokens = torch.zeros(batch, num_patches, patches.shape[-1], device=device)
decoder_tokens[batch_range, unmasked_indices] = tokens
decoder_tokens[batch_range, masked_indices] = repeat(patches.mean((0, 1)), "d -> b n d", b=batch, n=num_masked)
print(decoder_tokens.sum(-1)[0])
other = F.unfold(img, kernel_size=4, stride=4).transpose(1, 2)
unfolded = img.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).contiguous().view(batch, num_patches, -1)
print(torch.allclose(unfolded, other, atol=1e-6), torch.allclose(other.sum(-1), patches.sum(-1), atol=1e-4))
pool = nn.Sequential(
    Rearrange("b (h w) d -> b d h w", h=4), Reduce("b d (h h2) (w w2) -> b (d h w)", "mean", h2=2, w2=2)
)
print(pool(patches)[0, :5])

v.eval()
model, example = v, img
