"""What `print(model)` shows, beside PyTorch's."""

from __future__ import annotations

import pytest
from sides import run, split

MODULES = """
nn.Upsample(scale_factor=2); nn.Upsample((4, 4), mode="bilinear", align_corners=True); nn.Upsample(scale_factor=(2, 1))
nn.UpsamplingNearest2d(scale_factor=2); nn.UpsamplingBilinear2d((3, 3)); nn.Flatten(0, -2); nn.Unflatten(1, (2, 3))
nn.Fold((4, 4), 2); nn.Unfold(3, padding=1); nn.PixelShuffle(2); nn.ChannelShuffle(2); nn.Identity(54)
nn.ModuleDict({"a": nn.ReLU(True)}); nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]); nn.Sequential()
nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Dropout2d(0.2, True))); nn.AlphaDropout()
nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)); nn.utils.spectral_norm(nn.Linear(2, 3))
nn.LazyLinear(3); nn.LazyConv2d(3, 3); nn.LazyBatchNorm2d(); nn.BatchNorm1d(3); nn.BatchNorm2d(3, affine=False)
nn.BatchNorm3d(3, bias=False); nn.SyncBatchNorm(3); nn.InstanceNorm2d(3); nn.InstanceNorm1d(3, affine=True)
nn.GroupNorm(2, 4); nn.GroupNorm(2, 4, bias=False); nn.LayerNorm([3, 4], elementwise_affine=False); nn.RMSNorm(3)
nn.LocalResponseNorm(2); nn.RNN(2, 3); nn.LSTM(2, 3, 2, batch_first=True, bidirectional=True, dropout=0.1)
nn.LSTM(2, 3, proj_size=2); nn.GRU(2, 3, bias=False); nn.LSTMCell(2, 3); nn.GRUCell(2, 3, False)
nn.RNNCell(2, 3, nonlinearity="relu"); nn.Embedding(4, 3, padding_idx=0, max_norm=1.0); nn.EmbeddingBag(4, 3)
nn.CrossEntropyLoss(); nn.BCEWithLogitsLoss(); nn.TripletMarginLoss(); nn.LinearCrossEntropyLoss(3, 4)
nn.CosineSimilarity(); nn.PairwiseDistance(); nn.AdaptiveAvgPool2d((None, 1)); nn.AdaptiveMaxPool2d(1, True)
nn.AvgPool1d(2); nn.AvgPool1d((2,), 1, 1); nn.AvgPool2d(2); nn.AvgPool3d((1, 2, 2)); nn.MaxPool2d(2, ceil_mode=True)
nn.LPPool2d(2, 3); nn.MaxUnpool2d(2); nn.FractionalMaxPool2d(2, 3); nn.FractionalMaxPool3d(2, output_ratio=0.5)
nn.ZeroPad2d(1); nn.ConstantPad2d((1, 2, 3, 4), 0.5); nn.ReflectionPad2d(1); nn.CircularPad2d(1); nn.Softmax(dim=1)
nn.GELU("tanh"); nn.Hardtanh(-2, 2); nn.ReLU6(True); nn.Threshold(0.1, 20); nn.PReLU(3); nn.RReLU(); nn.GLU(1)
nn.Bilinear(2, 3, 4); nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6]); nn.MultiheadAttention(4, 2, kdim=3, vdim=3)
nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2); nn.Transformer(4, 2, 1, 1, 8)
nn.Conv1d(2, 4, 3, padding="same", padding_mode="circular", dilation=2); T.finfo(T.float32); T.iinfo(T.int32)
nn.Linear(2, 1).load_state_dict({"weight": T.zeros(1, 2)}, strict=False)
"""


@pytest.mark.parametrize("module", split(MODULES))
def test_it_prints_as_pytorchs(module: str) -> None:
    assert repr(run(module, {}, 0)) == repr(run(module, {}, 1))


@pytest.mark.parametrize("side", [0, 1])
def test_the_out_projection_of_an_attention_is_no_plain_linear_layer(side: int) -> None:
    """So that an initialisation of every `type(m) is nn.Linear` passes it by on both sides."""
    assert not run("type(nn.MultiheadAttention(4, 2).out_proj) is nn.Linear", {}, side)
    assert run("isinstance(nn.MultiheadAttention(4, 2).out_proj, nn.Linear)", {}, side)
    assert run(
        "nn.modules.linear.NonDynamicallyQuantizableLinear is type(nn.MultiheadAttention(4, 2).out_proj)", {}, side
    )
