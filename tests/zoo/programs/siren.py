"""An image as a network of sines: fitted to its values, to its gradients and to its laplacian."""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def get_mgrid(sidelen, dim=2):
    """A flattened grid of coordinates in [-1, 1]."""
    tensors = tuple(dim * [torch.linspace(-1, 1, steps=sidelen)])
    mgrid = torch.stack(torch.meshgrid(*tensors), dim=-1)
    return mgrid.reshape(-1, dim)


class SineLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, is_first=False, omega_0=30):
        super().__init__()
        self.omega_0 = omega_0
        self.is_first = is_first
        self.in_features = in_features
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.init_weights()

    def init_weights(self):
        with torch.no_grad():
            if self.is_first:
                self.linear.weight.uniform_(-1 / self.in_features, 1 / self.in_features)
            else:
                self.linear.weight.uniform_(
                    -np.sqrt(6 / self.in_features) / self.omega_0, np.sqrt(6 / self.in_features) / self.omega_0
                )

    def forward(self, input):
        return torch.sin(self.omega_0 * self.linear(input))

    def forward_with_intermediate(self, input):
        intermediate = self.omega_0 * self.linear(input)
        return torch.sin(intermediate), intermediate


class Siren(nn.Module):
    def __init__(
        self, in_features, hidden_features, hidden_layers, out_features, outermost_linear=False, hidden_omega_0=30.0
    ):
        super().__init__()
        self.net = []
        self.net.append(SineLayer(in_features, hidden_features, is_first=True, omega_0=10))
        for i in range(hidden_layers):
            self.net.append(SineLayer(hidden_features, hidden_features, is_first=False, omega_0=hidden_omega_0))
        if outermost_linear:
            final_linear = nn.Linear(hidden_features, out_features)
            with torch.no_grad():
                final_linear.weight.uniform_(
                    -np.sqrt(6 / hidden_features) / hidden_omega_0, np.sqrt(6 / hidden_features) / hidden_omega_0
                )
            self.net.append(final_linear)
        self.net = nn.Sequential(*self.net)

    def forward(self, coords):
        coords = coords.clone().detach().requires_grad_(True)  # allows to take derivative w.r.t. input
        return self.net(coords), coords

    def forward_with_activations(self, coords, retain_grad=False):
        activations = OrderedDict()
        activation_count = 0
        x = coords.clone().detach().requires_grad_(True)
        activations["input"] = x
        for i, layer in enumerate(self.net):
            if isinstance(layer, SineLayer):
                x, intermed = layer.forward_with_intermediate(x)
                if retain_grad:
                    x.retain_grad()
                    intermed.retain_grad()
                activations["_".join((str(layer.__class__.__name__), "%d" % activation_count))] = intermed
                activation_count += 1
            else:
                x = layer(x)
                if retain_grad:
                    x.retain_grad()
            activations["_".join((str(layer.__class__.__name__), "%d" % activation_count))] = x
            activation_count += 1
        return activations


def laplace(y, x):
    grad = gradient(y, x)
    return divergence(grad, x)


def divergence(y, x):
    div = 0.0
    for i in range(y.shape[-1]):
        div += torch.autograd.grad(y[..., i], x, torch.ones_like(y[..., i]), create_graph=True)[0][..., i : i + 1]
    return div


def gradient(y, x, grad_outputs=None):
    if grad_outputs is None:
        grad_outputs = torch.ones_like(y)
    return torch.autograd.grad(y, [x], grad_outputs=grad_outputs, create_graph=True)[0]


class ImageFitting(Dataset):
    def __init__(self, sidelength):
        super().__init__()
        yy, xx = np.mgrid[-1 : 1 : sidelength * 1j, -1 : 1 : sidelength * 1j]
        img = torch.from_numpy(np.cos(3 * xx) * np.sin(2 * yy)).float().unsqueeze(0)
        img = (img - img.mean()) / img.std()
        self.grads = torch.stack([torch.gradient(img[0], dim=0)[0], torch.gradient(img[0], dim=1)[0]], dim=-1).reshape(
            -1, 2
        )
        self.pixels = img.permute(1, 2, 0).view(-1, 1)
        self.coords = get_mgrid(sidelength, 2)

    def __len__(self):
        return 1

    def __getitem__(self, idx):
        if idx > 0:
            raise IndexError
        return self.coords, {"img": self.pixels, "grads": self.grads}


torch.manual_seed(4)
dataloader = DataLoader(ImageFitting(10), batch_size=1, pin_memory=False, num_workers=0)
img_siren = Siren(in_features=2, out_features=1, hidden_features=20, hidden_layers=2, outermost_linear=True)
model_input, ground_truth = next(iter(dataloader))
print(model_input.shape, {k: v.shape for k, v in ground_truth.items()})
losses = {
    "img": lambda out, coords: ((out - ground_truth["img"]) ** 2).mean(),
    "grads": lambda out, coords: (gradient(out, coords) - ground_truth["grads"]).pow(2).sum(-1).mean(),
    "laplace": lambda out, coords: laplace(out, coords).pow(2).mean() * 1e-4,
}
for name, criterion in losses.items():
    optim = torch.optim.Adam(lr=1e-4, params=img_siren.parameters())
    for step in range(4):
        model_output, coords = img_siren(model_input)
        loss = criterion(model_output, coords)
        optim.zero_grad()
        loss.backward()
        optim.step()
        print("%s step %d, total loss %0.6f" % (name, step, loss))
model_output, coords = img_siren(model_input)
img_grad = gradient(model_output, coords)
img_laplacian = laplace(model_output, coords)
print(img_grad.norm(dim=-1).view(10, 10)[5].data, img_laplacian.abs().mean().item() / 100)
activations = img_siren.forward_with_activations(model_input, retain_grad=True)
list(activations.values())[-1].sum().backward()
print([(k, None if v.grad is None else round(v.grad.abs().mean().item(), 4)) for k, v in activations.items()])
model, example = img_siren.net, model_input[0, :7]
