"""Losses as functions and as modules, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import assert_same, check_error, check_gradient, check_value, names, run, split, torch

import ox
from ox.errors import ShapeError

R = np.random.default_rng(11)
LABELS = np.array([[2, 0, -1, 1], [-1, 3, 1, 0], [3, 1, 2, 0]])
ARRAYS = {
    "x": R.normal(size=(3, 4)) * 2,
    "y": R.normal(size=(3, 4)) * 2,
    "z": R.normal(size=(3, 4)),
    "p": R.uniform(0.05, 0.95, size=(3, 4)),
    "q": R.uniform(0.05, 0.95, size=(3, 4)),
    "v": R.uniform(0.5, 2.0, size=(3, 4)),
    "v1": R.uniform(0.5, 2.0, size=(3, 1)),
    "vr": R.uniform(0.5, 2.0, size=(3,)),
    "w": R.uniform(0.2, 2.0, size=(4,)),
    "k": R.normal(size=(2, 4, 3, 2)),
    "kt": R.integers(0, 4, size=(2, 3, 2)),
    "kp": R.dirichlet(np.ones(4), size=(2, 3, 2)).transpose(0, 3, 1, 2),
    "c": np.array([3, 0, 1]),
    "c0": np.array(2),
    "ci": np.array([1, 0, 1]),
    "none": np.array([-100, -100, -100]),
    "labels": LABELS,
    "s": np.where(R.normal(size=(3, 4)) > 0, 1, -1).astype(np.int64),
    "sf": np.where(R.normal(size=(3, 4)) > 0, 1.0, -1.0),
    "s1": np.array([1, -1, 1]),
    "b": (R.random((3, 4)) > 0.5).astype(np.float64),
    "n": R.poisson(3, size=(3, 4)).astype(np.float64),
    "f": R.normal(size=(3, 4)).astype(np.float32),
    "g": R.normal(size=(3, 4)).astype(np.float32),
    "pf": R.uniform(0, 1, size=(3, 4)).astype(np.float32),
    "edge": np.array([0.0, 1.0, 0.0, 1.0, 0.5], np.float32),
    "edget": np.array([0.0, 1.0, 1.0, 0.0, 0.5], np.float32),
    "lw": R.normal(size=(5, 4)),
    "lb": R.normal(size=(5,)),
    "lk": R.normal(size=(5, 2, 4)),
    "lt": R.integers(0, 5, size=(3, 2)),
    "ignored": np.array([-100] * 3),  # targets that are all ignored
    "far": np.array([[200.0, -200.0, 5.0, 0.0]] * 3),
}

PAIRS = """
F.mse_loss(x, y{0}); F.l1_loss(x, y{0}); F.smooth_l1_loss(x, y{0}); F.smooth_l1_loss(x, y, beta=0.3{0})
F.smooth_l1_loss(x, y, beta=0.0{0}); F.huber_loss(x, y{0}); F.huber_loss(x, y, delta=0.4{0})
F.huber_loss(x, y, weight=v{0}); F.mse_loss(x, y, weight=v{0}); F.l1_loss(x, y, weight=v{0})
F.binary_cross_entropy(p, q{0}); F.binary_cross_entropy(p, b, w{0}); F.binary_cross_entropy(p, q, v{0})
F.binary_cross_entropy_with_logits(x, q{0}); F.binary_cross_entropy_with_logits(x, q, v, pos_weight=w{0})
F.binary_cross_entropy_with_logits(far, b{0}); F.kl_div(x, p{0}); F.kl_div(x, b{0})
F.kl_div(x, y, log_target=True{0})
F.poisson_nll_loss(z, n{0}); F.poisson_nll_loss(v, n, False{0}); F.poisson_nll_loss(z, n, full=True{0})
F.gaussian_nll_loss(x, y, v{0}); F.gaussian_nll_loss(x, y, v1, True{0}); F.gaussian_nll_loss(x, y, vr{0})
F.gaussian_nll_loss(x, y, 0.5{0}); F.gaussian_nll_loss(x, y, v * 1e-9{0}); F.soft_margin_loss(x, sf{0})
F.soft_margin_loss(x, s{0}); F.hinge_embedding_loss(x, s{0}); F.hinge_embedding_loss(x, s, 0.4{0})
F.cosine_embedding_loss(x, y, s1{0}); F.cosine_embedding_loss(x, y, s1, 0.2{0})
F.cosine_embedding_loss(x[0], y[0], s1[1]{0}); F.margin_ranking_loss(x, y, sf{0})
F.margin_ranking_loss(x, y, s, 0.6{0})
F.triplet_margin_loss(x, y, z{0}); F.triplet_margin_loss(x, y, z, 2.0, 1, swap=True{0})
F.triplet_margin_loss(x, y, z, p=3, eps=1e-3{0}); F.triplet_margin_loss(x[0], y[0], z[0]{0})
F.triplet_margin_with_distance_loss(x, y, z{0}); F.triplet_margin_with_distance_loss(x, y, z, swap=True, margin=3{0})
F.triplet_margin_with_distance_loss(x, y, z, distance_function=lambda a, b: (a - b).abs().sum(-1){0})
F.multi_margin_loss(x, c{0}); F.multi_margin_loss(x, c, 2, 0.7{0}); F.multi_margin_loss(x, c, weight=w{0})
F.multi_margin_loss(x[0], c0{0}); F.multilabel_margin_loss(x, labels{0}); F.multilabel_margin_loss(x[0], labels[0]{0})
F.multilabel_soft_margin_loss(x, b{0}); F.multilabel_soft_margin_loss(x, q, w{0})
F.cross_entropy(x, c{0}); F.cross_entropy(x, c, w{0}); F.cross_entropy(x, ci, ignore_index=1{0})
F.cross_entropy(x, c, w, label_smoothing=0.2{0}); F.cross_entropy(k, kt{0})
F.cross_entropy(k, kt, w, label_smoothing=0.1{0})
F.cross_entropy(x, ci, w, ignore_index=0, label_smoothing=0.3{0}); F.cross_entropy(k, kp{0})
F.cross_entropy(x, p, w{0})
F.cross_entropy(x, p, label_smoothing=0.2{0}); F.cross_entropy(k, kp, w, label_smoothing=0.2{0})
F.cross_entropy(x[0], c0{0})
F.cross_entropy(far, c{0}); F.nll_loss(x, c{0}); F.nll_loss(k, kt, w{0}); F.nll_loss(x, ci, ignore_index=1{0})
F.nll_loss(x[0], c0{0}); F.linear_cross_entropy(x, lw, c{0}); F.linear_cross_entropy(x, lw, c, linear_bias=lb{0})
F.cross_entropy(x, ignored{0}); F.cross_entropy(x, ignored, w, label_smoothing=0.1{0})
F.nll_loss(x, ignored, w{0}); F.linear_cross_entropy(x, lw, ignored{0})
F.linear_cross_entropy(x, lk, lt, label_smoothing=0.1{0}); F.linear_cross_entropy(x[0], lw, c0, ignore_index=3{0})
"""
EVERY = [e.format(r) for e in split(PAIRS) for r in ("", ", reduction='sum'", ", reduction='none'")]
VALUES = """
F.mse_loss(f, g); F.l1_loss(f, g); F.smooth_l1_loss(f, g); F.huber_loss(f, g); F.binary_cross_entropy(pf, pf)
F.binary_cross_entropy(edge, edget); F.binary_cross_entropy(edge, edget, reduction='none'); F.kl_div(f, pf)
F.kl_div(x, p, reduction='batchmean'); F.kl_div(x, y, reduction='batchmean', log_target=True)
F.kl_div(x[0], p[0], reduction='batchmean'); F.cross_entropy(f, c); F.cross_entropy(f, pf); F.multi_margin_loss(f, c)
F.multilabel_margin_loss(f, labels); F.cross_entropy(x, none); F.cross_entropy(x, none, reduction='sum')
F.gaussian_nll_loss(f, g, pf + 0.1); F.poisson_nll_loss(f, pf, full=True); F.triplet_margin_loss(f, g, pf)
F.cosine_embedding_loss(f, g, s1); F.soft_margin_loss(f, s.float()); F.multilabel_soft_margin_loss(f, pf)
F.mse_loss(x, y, True); F.mse_loss(x, y, False); F.mse_loss(x, y, None, False); F.l1_loss(x, y, reduce=True)
F.cross_entropy(x, c, None, False); F.nll_loss(x, c, None, None, -100, False); F.kl_div(x, p, False, False)
F.cross_entropy(x, c.int()) if T.__name__ == 'ox' else F.cross_entropy(x, c)
"""
MODULES = """
nn.MSELoss()(x, y); nn.L1Loss(reduction='sum')(x, y); nn.SmoothL1Loss(beta=0.3)(x, y); nn.HuberLoss('sum', 0.4)(x, y)
nn.BCELoss(w)(p, q); nn.BCEWithLogitsLoss(v, pos_weight=w)(x, q); nn.KLDivLoss(reduction='batchmean')(x, p)
nn.KLDivLoss(log_target=True)(x, y); nn.PoissonNLLLoss(full=True)(z, n)
nn.PoissonNLLLoss(log_input=False, eps=1e-3)(v, n)
nn.GaussianNLLLoss(full=True, eps=0.1)(x, y, v); nn.SoftMarginLoss()(x, sf); nn.HingeEmbeddingLoss(0.4)(x, s)
nn.CosineEmbeddingLoss(0.1)(x, y, s1); nn.MarginRankingLoss(0.6)(x, y, sf)
nn.TripletMarginLoss(2.0, swap=True)(x, y, z)
nn.TripletMarginWithDistanceLoss(margin=0.5)(x, y, z); nn.MultiMarginLoss(2, 0.5, w)(x, c)
nn.MultiLabelMarginLoss(reduction='none')(x, labels); nn.MultiLabelSoftMarginLoss(w)(x, b)
nn.CrossEntropyLoss(w, ignore_index=0, label_smoothing=0.1)(x, c); nn.NLLLoss(w, reduction='sum')(x, c)
nn.NLLLoss2d()(k, kt); nn.MSELoss(size_average=False)(x, y); nn.L1Loss(reduce=False)(x, y)
nn.CTCLoss(1)(T.log_softmax(k[:, :3].flatten(2), 2), kt[0, :, :1] * 0 + 2, [2, 2, 1], [1, 1, 1])
"""
ERRORS = """
F.cross_entropy(x, c[:2]); F.cross_entropy(x, c + 2); F.cross_entropy(x, c, w[:3]); F.cross_entropy(x, b[:, :3])
F.cross_entropy(x, c, reduction='average'); F.nll_loss(x, b[:, 0]); F.nll_loss(x, c - 1); F.binary_cross_entropy(x, q)
F.binary_cross_entropy(p, q[:2]); F.binary_cross_entropy_with_logits(x, q[:2]); F.smooth_l1_loss(x, y, beta=-1.0)
F.huber_loss(x, y, delta=0.0); F.mse_loss(x, y[:, :3]); F.l1_loss(x, y, weight=w); F.gaussian_nll_loss(x, y, -v)
F.gaussian_nll_loss(x, y, v[:, :2]); F.multi_margin_loss(x, c + 2); F.multi_margin_loss(x, c, p=3)
F.multi_margin_loss(x, c[:2]); F.multilabel_margin_loss(x, labels + 1); F.multilabel_margin_loss(x, labels[:2])
F.cosine_embedding_loss(x, y, s); F.triplet_margin_loss(x, y, z[0]); F.triplet_margin_loss(x, y, z, 0.0)
F.margin_ranking_loss(x, y, s1); F.linear_cross_entropy(x, lw[:, :3], c)
F.linear_cross_entropy(x, lw, c, linear_bias=w)
F.linear_cross_entropy(x[0], lk, c0); F.linear_cross_entropy(x, lw, T.softmax(lt[:, :1] * lb, 1), ignore_index=2)
F.cross_entropy(x, c, label_smoothing=1.5); F.kl_div(x, p, reduction='most'); F.multilabel_soft_margin_loss(x, b[:2])
nn.MultiMarginLoss(3); nn.TripletMarginLoss(0.0)
"""
# targets whose gradient PyTorch does not give, or for which it has no second one
FIRST_ALONE = ("multi_margin", "multilabel_margin", "linear_cross_entropy", "binary_cross_entropy(p")


@pytest.mark.parametrize("expression", [*EVERY, *split(VALUES), *split(MODULES)])
def test_values(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize("expression", EVERY)
def test_gradients(expression: str) -> None:
    followed = [n for n in "xyzpvk" if n in _words(expression)]
    if "binary_cross_entropy" in expression:
        followed = [n for n in followed if n != "v"]  # PyTorch gives the weight no gradient
    if not followed or "far" in expression:
        followed, expression = ["x"], expression.replace("far", "x * 40")
    second = not any(part in expression for part in FIRST_ALONE)
    check_gradient(expression, ARRAYS, followed, second)


def _words(expression: str) -> set[str]:
    import re

    return set(re.findall(r"\b[a-z]\b", expression))


@pytest.mark.parametrize("expression", split(ERRORS))
def test_errors(expression: str) -> None:
    check_error(expression, ARRAYS)


LENGTHS = [
    ("[8, 8, 8]", "[3, 3, 3]"),
    ("[8, 5, 3]", "[3, 1, 0]"),
    ("T.tensor([8, 7, 6])", "T.tensor([2, 3, 1])"),
]
CTC = {
    "lp": R.normal(size=(8, 3, 5)),
    "t": np.array([[1, 2, 2], [3, 3, 3], [4, 1, 4]]),
    "flat": np.array([1, 2, 2, 3, 3, 3, 4, 1, 4]),
    "some": np.array([2, 3, 1, 1, 2, 4]),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("inputs", "sizes"), LENGTHS)
def test_ctc(inputs: str, sizes: str, reduction: str) -> None:
    expression = f"F.ctc_loss(T.log_softmax(lp, 2), t, {inputs}, {sizes}, reduction='{reduction}')"
    check_value(expression, CTC)
    check_gradient(expression, CTC, ["lp"], second=False)


@pytest.mark.parametrize(
    "expression",
    [
        "F.ctc_loss(T.log_softmax(lp, 2), flat, [8, 8, 8], [3, 3, 3])",
        "F.ctc_loss(T.log_softmax(lp, 2), t.float(), [8, 8, 8], [3, 3, 3])",
        "F.ctc_loss(T.log_softmax(lp, 2), some, [8, 8, 5], [1, 2, 3])",
        "F.ctc_loss(T.log_softmax(lp[:, 0], 1), t[0], T.tensor(8), T.tensor(3))",
        "F.ctc_loss(T.log_softmax(lp, 2), t, [8, 8, 8], [1, 1, 1], blank=3 - 3)",
        "F.ctc_loss(T.log_softmax(lp.float(), 2), t, [8, 8, 8], [3, 3, 3])",
        "F.ctc_loss(T.log_softmax(lp, 2), t, [8, 2, 8], [3, 3, 3], zero_infinity=True)",
        "F.ctc_loss(T.log_softmax(lp, 2), t, [8, 2, 8], [3, 3, 3], reduction='none')",
        "nn.CTCLoss(zero_infinity=True)(T.log_softmax(lp, 2), t, [8, 2, 8], [3, 3, 3])",
    ],
)
def test_ctc_options(expression: str) -> None:
    check_value(expression, CTC)
    if "none" not in expression and "float" not in expression:
        check_gradient(expression, CTC, ["lp"], second=False)


@pytest.mark.parametrize(
    "expression",
    [
        "F.ctc_loss(lp, t, [9, 8, 8], [3, 3, 3])",
        "F.ctc_loss(lp, t, [8, 8], [3, 3, 3])",
        "F.ctc_loss(lp, t, [8, 8, 8], [4, 3, 3])",
        "F.ctc_loss(lp, flat[:5], [8, 8, 8], [3, 3, 3])",
        "F.ctc_loss(lp, t, [8, 8, 8], [3, 3, 3], blank=5)",
        "F.ctc_loss(lp[0, 0], t, [8, 8, 8], [3, 3, 3])",
    ],
)
def test_ctc_errors(expression: str) -> None:
    check_error(expression, CTC)


def adaptive(side: int, head_bias: bool) -> list[object]:
    """The adaptive softmax with the same weights on both sides: output, loss, all log-probabilities, prediction."""
    random = np.random.default_rng(3)
    given = {"x": random.normal(size=(9, 8)).astype(np.float32), "t": np.array([0, 3, 4, 6, 11, 8, 2, 5, 11])}
    own = names(given, side)
    T, nn = own["T"], own["nn"]
    module = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 7], div_value=2.0, head_bias=head_bias)
    state = {k: T.tensor(random.normal(size=tuple(v.shape)).astype(np.float32)) for k, v in module.state_dict().items()}
    module.load_state_dict(state)
    output, loss = module(own["x"], own["t"])
    loss.backward()
    grads = [p.grad for _, p in sorted(module.named_parameters())]
    single, _ = module(own["x"][0], own["t"][0])
    return [output, loss, module.log_prob(own["x"]), module.predict(own["x"]), single, *grads]


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_softmax(head_bias: bool) -> None:
    assert_same(adaptive(0, head_bias), adaptive(1, head_bias), rtol=1e-4, atol=1e-5)


def test_state_names() -> None:
    for make in ("nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 7])", "nn.LinearCrossEntropyLoss(4, 5, bias=True)"):
        ours, theirs = (list(run(make, {}, side).state_dict()) for side in (0, 1))
        assert ours == theirs


def test_linear_cross_entropy_module() -> None:
    found = []
    for side in (0, 1):
        own = names({"x": ARRAYS["x"], "t": ARRAYS["lt"]}, side)
        module = own["nn"].LinearCrossEntropyLoss(4, 5, out_features=(2,), bias=True, label_smoothing=0.1)
        module = module.double()
        state = {
            k: own["T"].tensor(np.cos(np.arange(v.numel())).reshape(tuple(v.shape)))
            for k, v in module.state_dict().items()
        }
        module.load_state_dict(state)
        found.append(module(own["x"], own["t"]))
    assert_same(*found)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "multilabel_soft_margin_loss"])
@pytest.mark.parametrize("target", ["y[0]", "y[:, :1]", "y[:1]", "y[0, 0]"])
def test_targets_that_broadcast(name: str, target: str) -> None:
    check_value(f"F.{name}(x, {target})", ARRAYS)
    check_gradient(f"F.{name}(x, {target})", ARRAYS, ["x", "y"])


def test_a_target_of_another_shape_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"mse_loss: target \[1\] is broadcast"):
        ox.nn.functional.mse_loss(ox.tensor(3.0), ox.tensor([1.0]))
    with pytest.raises(ShapeError, match="compares values one by one"):
        ox.nn.functional.l1_loss(ox.ones(3), ox.ones(3, 1))
    with pytest.raises(ShapeError, match="compares values one by one"):
        ox.nn.functional.huber_loss(ox.ones(3), ox.ones(2))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target", ["classes", "shares"])
def test_rows_of_float32(target: str, weighted: bool, smoothing: float, reduction: str) -> None:
    """What the compiled kernels take."""
    draw = np.random.default_rng(5)
    scores = (4 * draw.standard_normal((60, 43))).astype(np.float32)
    classes = draw.integers(0, 43, 60)
    classes[::9] = 7
    given = draw.dirichlet(np.ones(43), 60).astype(np.float32) if target == "shares" else classes
    weight = draw.uniform(0.1, 2, 43).astype(np.float32)
    found = []
    for side in (ox, torch):
        x, options = side.tensor(scores, requires_grad=True), {"ignore_index": 7} if target == "classes" else {}
        w = side.tensor(weight) if weighted else None
        loss = side.nn.functional.cross_entropy(
            x, side.tensor(given), w, reduction=reduction, label_smoothing=smoothing, **options
        )
        (first,) = side.autograd.grad(loss.sum(), [x], create_graph=True)
        (second,) = side.autograd.grad((first * first).sum(), [x])
        found.append((loss, first, second))
    for (a, b), tolerance in zip(zip(*found, strict=True), (1e-6, 1e-6, 1e-5), strict=True):
        assert_same(a, b, 1e-5, tolerance)
