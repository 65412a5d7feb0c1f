"""Functions and their gradients as ONNX files: ONNX Runtime gives eager's numbers at sizes that were not recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from rows import rows

import ox
from ox import Tensor
from ox.autograd import grad
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F
from ox.tolerance import compare

# of x [n, 4] and v [4], which lies between 0.2 and 0.9
SMOOTH = """
sin(x) cos(x) tan(v) asin(v) acos(v) atan(x) sinh(x) cosh(x) tanh(x) asinh(x) acosh(v+1) atanh(v) exp2(x) expm1(x)
log1p(v) log2(v) log10(v) erf(x) erfc(x) erfinv(v) lgamma(v) digamma(v) polygamma(1,v) mvlgamma(v+2,2) sinc(x)
logit(v) deg2rad(x) rad2deg(x) sigmoid(x) rsqrt(v) atan2(x,v) hypot(x,v) logaddexp(x,v) logaddexp2(x,v)
lerp(x,v,0.3) addcmul(x,v,x,value=2) addcdiv(x,x,v) copysign(x,-v) xlogy(x,v) fmod(x,v) remainder(x,v) frac(x)
clamp_min(x,v) clamp(x,-0.5,0.5) clamp(x,v-0.5,v) norm(x*1.0,0,0)*x floor(x*3)*x sign(x)*x
fmax(x,v) fmin(x,v) maximum(x,v) nan_to_num(x) float_power(v,x) true_divide(x,v)
ldexp(x,v) rsub(x,v) prod(x,1) prod(x,0) logsumexp(x,0) logsumexp(x,(0,1)) nansum(x,0) nanmean(x,0) amin(x,0)
amax(x,1) var(x,0) var(x) std(x,0) std(x,1,correction=0) norm(x) norm(x,1,0) norm(x,3,0) norm(x,1.5)
norm(x,float('inf'),0) dist(x,v) renorm(x,2,0,1.0) cumsum(x,0) cumsum(x,1) cumprod(x,0) cumprod(x,1)
logcumsumexp(x,0) logcumsumexp(x,1) cummax(x,0).values cummin(x,1).values median(x,0).values median(x,1).values
median(x) nanmedian(x,0).values quantile(x,0.3,0) quantile(x,0.7,1) nanquantile(x,0.4,0) mode(x,0).values
softmax(x,0) log_softmax(x,1) mean(x,0) x.abs() x.square() x**3 v**x x.where(x>0,v) F.relu6(x) F.selu(x)
F.lp_pool1d(x,float('inf'),2)
F.celu(x,2.0) F.elu(x,0.5) F.leaky_relu(x,0.2) F.hardtanh(x) F.hardswish(x) F.hardsigmoid(x) F.silu(x) F.mish(x)
F.gelu(x) F.softplus(x) F.softplus(x,2,1.0) F.logsigmoid(x) F.softsign(x) F.tanhshrink(x) F.hardshrink(x)
F.softshrink(x) F.glu(x,1) F.prelu(x,v) F.threshold(x,0.1,2.0) F.softmin(x,0) F.rrelu(x) F.relu(x*1.0,inplace=True)
special.entr(v) special.ndtr(x) special.ndtri(v) special.log_ndtr(x) special.erfcx(x) special.xlog1py(x,v)
"""
FLAT = """
floor(x) ceil(x) round(x) round(x,decimals=1) trunc(x) sign(x) sgn(x) heaviside(x,x) signbit(x) isposinf(x)
isneginf(x) isreal(x) isnan(x) isfinite(x) angle(x) count_nonzero(x,0) argmin(x,0) argmax(x,1) aminmax(x,dim=0)
cummax(x,0).indices median(x,0).indices x.long()<<2 x.long()>>1 gcd(x.long(),(v*9).long()) lcm(x.int(),(v*9).int())
bitwise_or(x.long(),5) ~x.long() (x>0)<(v>0.5) x.long().bitwise_and(3) x.long().cumsum(0) x.long().prod(0)
logical_xor(x>0,v>0.5) x.int().amin(0) greater(x,v) less_equal(x,v) not_equal(x,v) isclose(x,v) std_mean(x,0)
var_mean(x,1) x.mode(0).indices
"""


# with sizes of x as numbers and as sizes of what is made, n = x.shape[0]
SIZED = """
x.tensor_split(2,0) x.chunk(2,0) x.chunk(3,0)[2] F.pdist(x) vander(x[:,0]) vander(x[:,0],increasing=True) roll(x,4,0)
roll(x,-7,0) roll(x,2,0) roll(x,(2,1),(0,1)) roll(x,5) x.roll(n//2,0) ox.fft.fftshift(x,0) ox.fft.ifftshift(x)
combinations(x[:,0]) combinations(x[:,0],with_replacement=True) (x@x.T).fill_diagonal_(2.0) (x*1).fill_diagonal_(2.0)
x.repeat(9,1)[:,:3].clone().fill_diagonal_(1.0,wrap=True) x.T.clone().fill_diagonal_(1.0) v.repeat(n,1) v.repeat(n)
v[None].repeat(n,2) x.repeat(n,1) tile(v,(n,1)) v.repeat_interleave(n) x.repeat_interleave(n,0) v.expand(n,4)
ox.func.vmap(ox.sin)(x) ox.func.vmap(ox.func.grad(ox.sum))(x)*x ox.eye(n)@x ox.eye(n,3)*x[:,:1] F.layer_norm(x.T,(n,))
F.rms_norm(x.T,(n,)) ox.linspace(-1,1,n)[:,None]*x ox.linspace(0,n-1,4)*v ox.logspace(0,1,n)*x[:,0]
ox.triu_indices(n,5,1)*x.sum() ox.tril_indices(n,n)*x.sum() ox.tensor(n)*x ox.tensor([n,1])*x[:,:2] ox.tensor(n/2)*x
ox.tensor(x.shape)*x.sum() ox.tensor([[n/2,1.5]])*x.sum() ox.as_tensor(n-1)*x ox.scalar_tensor(n)*x
x.new_tensor([n,2])*x.sum() ox.tensor(n,dtype=ox.float64)*x ox.full((2,),n)*x.sum() full_like(x,n)*x
full_like(x,n/4)*x (x*1).fill_(n)*x F.affine_grid(ox.eye(2,3)[None].repeat(n,1,1),(n,1,2,2))*x.sum()
x.scatter(0,ox.arange(n)[:,None],x[:,1:2]) ox.fft.fftfreq(n)*x[:,0] ox.fft.rfftfreq(n,0.5)*x.sum()
F.avg_pool1d(x.T[None],n) F.max_pool1d(x.T[None],n) F.avg_pool2d(x[None],x.shape) F.max_pool2d(x[None,None],x.shape)
ox.nn.Transformer.generate_square_subsequent_mask(n).exp()@x
"""


def value(expression: str, x: Any, v: Any) -> list[Tensor]:
    functions = {name: getattr(ox, name) for name in ox.functions.__all__}
    out = eval(expression, {**functions, "F": F, "special": ox.special, "ox": ox, "x": x, "v": v, "n": x.shape[0]})
    return list(out) if isinstance(out, tuple) else [out]


def check(expression: str, followed: bool) -> None:
    def step(x: Any, v: Any) -> list[Tensor]:
        own = (x.requires_grad_(), v.requires_grad_()) if followed else (x, v)
        out = value(expression, *own)
        if not followed:
            return out
        total = sum((y * y).sum() for y in out)
        found = grad(total, list(own), allow_unused=True)
        return [*(y.detach() for y in out), *(g for g in found if g is not None)]

    def arrays(rows: int) -> tuple[Any, Any]:
        random = np.random.default_rng(rows)
        x = random.normal(size=(rows, 4)).astype(np.float32)
        return x, random.uniform(0.2, 0.9, size=4).astype(np.float32)

    x, v = arrays(3)
    graph = record(step, {"x": ox.from_numpy(x), "v": ox.from_numpy(v)}, dims={"x": ["n", 4], "v": [4]})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), options)
    for count in (3, 5):
        x, v = arrays(count)
        feeds = {name: a for name, a in (("x", x), ("v", v)) if name in {i.name for i in session.get_inputs()}}
        eager = step(ox.from_numpy(x.copy()), ox.from_numpy(v.copy()))
        for got, expected in zip(session.run(None, feeds), eager, strict=True):
            assert got.dtype == expected.array.dtype
            difference = compare(got, expected.array)
            assert difference.ok, f"{expression} at {count} rows: off by {difference.max_abs}"


@rows("expression", SMOOTH.split(), items=2)
def test_with_gradient(expression: str) -> None:
    check(expression, followed=True)


@rows("expression", SIZED.split())
def test_sizes(expression: str) -> None:
    check(expression, followed=True)


@rows("expression", FLAT.split())
def test_without(expression: str) -> None:
    check(expression, followed=False)
