"""Module: parameters, buffers, submodules, hooks, and the call that knows where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar, overload

import numpy as np

from ox.dtypes import DType, bfloat16, float16, float32, float64, is_floating
from ox.errors import ArgumentError, OxError
from ox.nn import state
from ox.nn.hooks import Handle, Hooks
from ox.nn.parameter import Buffer, Parameter
from ox.ops.explain import place
from ox.ops.mode import MODE, Mode, switched
from ox.tensor import Tensor

Self = TypeVar("Self", bound="Module")


class Module:
    """The base of every layer and model; `torch.nn.Module`.

    Assigning a Parameter, Buffer or Module to an attribute registers it. Calling the module runs `forward` between
    its hooks and tells operators which module is running, so errors and recorded nodes can name it.
    """

    training: bool = True
    _hooks: Hooks | None = None
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]  # buffers that state_dict leaves out

    def __init__(self) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, _transient=set(), training=True)

    # -- calling -----------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it."""
        raise ArgumentError(f"{type(self).__name__} has no forward", hint="def forward(self, x): ...")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        token = MODE.set(
            Mode(mode.grad, mode.inference, mode.recording, mode.executor, (*mode.modules, self), mode.watch)
        )
        try:
            if self._hooks is None:
                return self.forward(*args, **kwargs)
            return self._hooks.run(self, args, kwargs)
        except OxError as error:
            raise self._explained(error, args) from error.__cause__
        finally:
            MODE.reset(token)

    def _explained(self, error: OxError, args: tuple[Any, ...]) -> OxError:
        """The innermost module that an error passes says, if it can, what it expected."""
        if not getattr(error, "_explained", False):
            error._explained = True  # type: ignore[attr-defined]
            error.where = error.where or place()
            # where the inputs are not even tensors, the operator's own words must do
            with suppress(TypeError, AttributeError, IndexError):
                self.explain(error, *args)
        return error

    def explain(self, error: OxError, *args: Any) -> None:
        """Overridden by layers: write `expected`, `got` and `hint` of an error that these inputs caused."""

    # -- attributes --------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        kind = (
            "_parameters"
            if isinstance(value, Parameter)
            else "_modules"
            if isinstance(value, Module)
            else "_buffers"
            if isinstance(value, Buffer)
            else None
        )
        if kind is not None:
            if kind not in fields:
                raise ArgumentError(
                    f"cannot assign '{name}' before Module.__init__ has run",
                    hint="super().__init__() as the first line of __init__",
                )
            self._forget(name)
            fields.pop(name, None)
            if kind == "_buffers" and not value.persistent:
                fields["_transient"].add(name)
            fields[kind][name] = value
            return
        for kind in ("_parameters", "_modules", "_buffers"):
            held = fields.get(kind)
            if held is not None and name in held:
                if value is not None and not (kind == "_buffers" and isinstance(value, Tensor)):
                    raise ArgumentError(
                        f"cannot assign {type(value).__name__} to '{name}', which is registered",
                        expected={"_parameters": "a Parameter or None", "_modules": "a Module or None"}.get(
                            kind, "a Tensor or None"
                        ),
                        got=type(value).__name__,
                    )
                held[name] = value
                return
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            held = fields.get(kind)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        if not self._forget(name):
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _forget(self, name: str) -> bool:
        held = [d for d in (self._parameters, self._buffers, self._modules) if name in d]
        for d in held:
            del d[name]
        self._transient.discard(name)
        return bool(held)

    def _free_name(self, name: str) -> None:
        if not name or "." in name:
            raise ArgumentError(f"'{name}' cannot name a parameter, buffer or module", expected="a name without dots")
        if hasattr(self, name) and name not in {**self._parameters, **self._buffers, **self._modules}:
            raise ArgumentError(f"{type(self).__name__} already has an attribute '{name}'", hint="another name")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name; None reserves it."""
        self._free_name(name)
        self._forget(name)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; `persistent` puts it into `state_dict`."""
        self._free_name(name)
        self._forget(name)
        self._buffers[name] = tensor
        if not persistent:
            self._transient.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name."""
        self._free_name(name)
        self._forget(name)
        self._modules[name] = module

    register_module = add_module

    # -- walking -----------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names; each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, held in getattr(module, kind).items():
                if held is not None and not (remove_duplicate and id(held) in seen):
                    seen.add(id(held))
                    yield f"{path}.{name}" if path else name, held

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names; one that is shared comes once, under its first name."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name. Raises AttributeError when there is none."""
        module: Any = self
        for part in target.split(".") if target else []:
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"'{part}' of '{target}' is not a Module")
        return module  # type: ignore[no-any-return]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with a dotted name. Raises AttributeError when there is none."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' has no parameter '{target}'")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name. Raises AttributeError when there is none."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' has no buffer '{target}'")
        return found

    # -- changing all of them ----------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Switch dropout, batch statistics and the like on or off, here and below."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self: Self) -> Self:
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients, or fill them with zeros."""
        for p in self.parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad = Tensor(np.zeros_like(p.grad.data))

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, move: Callable[[Tensor], Tensor]) -> Self:
        """Give every parameter, gradient and buffer the memory that `move` makes of it; the tensors stay the same
        objects, so optimizers keep theirs."""
        with switched(grad=False):
            for _, tensor in [*self.named_parameters(), *self.named_buffers()]:
                moved = move(tensor)
                if moved is not tensor:
                    tensor._shared_version()[0] += 1  # a backward that needs the old memory is an error
                    tensor.data = moved.data
                    if tensor.grad is not None:
                        tensor.grad = move(tensor.grad)
        return self

    @overload
    def to(self: Self, *args: Any) -> Self: ...
    @overload
    def to(self: Self, *, dtype: DType | None = None, device: str | None = None) -> Self: ...

    def to(self: Self, *args: Any, dtype: Any = None, device: Any = None) -> Self:
        """Another floating type for floating tensors, another device for all, or both, in place."""
        for arg in args:
            if isinstance(arg, Tensor):
                dtype, device = arg.data.dtype, arg.device
            elif isinstance(arg, str) and arg.split(":")[0] in ("cpu", "cuda"):
                device = arg
            else:
                dtype = arg
        if dtype is not None and not is_floating(np.dtype(dtype)):
            raise ArgumentError(
                "a module can only take a floating type",
                expected="float16, bfloat16, float32 or float64",
                got=str(dtype),
            )

        def move(x: Tensor) -> Tensor:
            wanted = dtype if is_floating(x.data.dtype) else None
            same = (wanted is None or x.data.dtype == wanted) and (device is None or x.device == device)
            return x if same else x.to(dtype=wanted, device=device)

        return self._apply(move)

    def float(self: Self) -> Self:
        return self.to(dtype=float32)

    def double(self: Self) -> Self:
        return self.to(dtype=float64)

    def half(self: Self) -> Self:
        return self.to(dtype=float16)

    def bfloat16(self: Self) -> Self:
        return self.to(dtype=bfloat16)

    def cpu(self: Self) -> Self:
        return self.to(device="cpu")

    def cuda(self: Self, device: int | None = None) -> Self:
        return self.to(device="cuda" if device is None else f"cuda:{device}")

    # -- state -------------------------------------------------------------------------------------------------

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Every parameter and persistent buffer by dotted name, sharing memory; `keep_vars` keeps them attached."""
        return state.state_dict(self, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> state.IncompatibleKeys:
        """Copy tensors or arrays into parameters and buffers of the same names.

        Args:
            strict: names must match exactly. Shapes must match either way.

        Returns:
            (missing_keys, unexpected_keys).

        Raises:
            LoadError: names or shapes do not fit; nothing was changed.
        """
        return state.load_state_dict(self, state_dict, strict)

    # -- hooks -------------------------------------------------------------------------------------------------

    def _hook(self, kind: str, hook: Callable[..., Any], with_kwargs: bool = False, prepend: bool = False) -> Handle:
        if self._hooks is None:
            self._hooks = Hooks()
        return self._hooks.add(kind, hook, with_kwargs, prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args)`` before forward; what it returns, if not None, replaces the arguments."""
        return self._hook("pre", hook, with_kwargs, prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args, output)`` after forward; what it returns, if not None, replaces the output."""
        return self._hook("post", hook, with_kwargs, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are known; may replace them."""
        return self._hook("backward_pre", hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are known; may replace
        those of the inputs. Inputs and outputs count when they are tensors given or returned by position."""
        return self._hook("backward", hook, prepend=prepend)

    # -- showing -----------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands in the brackets of the repr."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if not children:
            return f"{type(self).__name__}({extra})"
        lines = [*(extra.split("\n") if extra else []), *children]
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"
