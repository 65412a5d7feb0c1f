"""Low-rank adapters over a frozen pretrained classifier: merged in eval, taken apart in train."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALayer:
    def __init__(self, r: int, lora_alpha: int, lora_dropout: float, merge_weights: bool):
        self.r = r
        self.lora_alpha = lora_alpha
        self.lora_dropout = nn.Dropout(p=lora_dropout) if lora_dropout > 0.0 else (lambda x: x)
        self.merged = False
        self.merge_weights = merge_weights


class Linear(nn.Linear, LoRALayer):
    def __init__(self, in_features, out_features, r=0, lora_alpha=1, lora_dropout=0.0, merge_weights=True, **kwargs):
        nn.Linear.__init__(self, in_features, out_features, **kwargs)
        LoRALayer.__init__(self, r=r, lora_alpha=lora_alpha, lora_dropout=lora_dropout, merge_weights=merge_weights)
        if r > 0:
            self.lora_A = nn.Parameter(self.weight.new_zeros((r, in_features)))
            self.lora_B = nn.Parameter(self.weight.new_zeros((out_features, r)))
            self.scaling = self.lora_alpha / self.r
            self.weight.requires_grad = False
        self.reset_parameters()

    def reset_parameters(self):
        nn.Linear.reset_parameters(self)
        if hasattr(self, "lora_A"):
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
            nn.init.zeros_(self.lora_B)

    def train(self, mode: bool = True):
        nn.Linear.train(self, mode)
        if self.merge_weights and self.r > 0 and self.merged == mode:
            sign = -1 if mode else 1
            self.weight.data += sign * (self.lora_B @ self.lora_A) * self.scaling
            self.merged = not mode
        return self

    def forward(self, x: torch.Tensor):
        if self.r > 0 and not self.merged:
            result = F.linear(x, self.weight, bias=self.bias)
            result += (self.lora_dropout(x) @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)) * self.scaling
            return result
        return F.linear(x, self.weight, bias=self.bias)


def mark_only_lora_as_trainable(model: nn.Module, bias: str = "none") -> None:
    for n, p in model.named_parameters():
        if "lora_" not in n:
            p.requires_grad = False
    if bias == "all":
        for n, p in model.named_parameters():
            if "bias" in n:
                p.requires_grad = True


def lora_state_dict(model):
    return {k: v for k, v in model.state_dict().items() if "lora_" in k}


torch.manual_seed(0)
base = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 3))
model = nn.Sequential(
    Linear(12, 24, r=4, lora_alpha=8, lora_dropout=0.1),
    nn.GELU(),
    Linear(24, 24, r=4, lora_alpha=8),
    nn.GELU(),
    nn.Linear(24, 3),
)
print(model.load_state_dict(base.state_dict(), strict=False).missing_keys)
mark_only_lora_as_trainable(model, bias="all")
x, y = torch.randn(64, 12), torch.randint(0, 3, (64,))
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)
for epoch in range(4):
    model.train()
    for xb, yb in zip(x.split(16), y.split(16)):
        loss = F.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    apart = model[2].weight.norm().item()
    model.eval()
    with torch.no_grad():
        val = F.cross_entropy(model(x), y)
        acc = (model(x).argmax(dim=-1) == y).float().mean()
    print(f"epoch {epoch}: {loss:.4f} val {val:.4f} acc {acc:.3f} weight {apart:.4f} -> {model[2].weight.norm():.4f}")
torch.save(lora_state_dict(model), "lora.pt")
print({k: tuple(v.shape) for k, v in torch.load("lora.pt").items()})
example = x[:3]
