"""Function transforms: gradients, Jacobians, `vmap`. `torch.func`."""

from ox.func.jacobians import hessian, jacfwd, jacrev
from ox.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from ox.func.transforms import grad, grad_and_value, jvp, vjp
from ox.func.vectorize import vmap

value_and_grad = grad_and_value

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
