"""The tree of modules: walking it, finding what is in it, changing all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ox.core.changes import CHANGES
from ox.errors import ArgumentError
from ox.nn.parameter import Parameter
from ox.sparse.creation import cleared
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ox.nn.base.module import Module

Self = TypeVar("Self", bound="Tree")


class Tree:
    """Mixed into Module."""

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names; each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self  # type: ignore[misc]
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def _named_members(
        self,
        get_members_fn: Callable[[Any], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        """What `get_members_fn(module)` gives of each module, with dotted names."""
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, held in get_members_fn(module):
                if held is not None and not (remove_duplicate and id(held) in seen):
                    seen.add(id(held))
                    yield f"{path}.{name}" if path else name, held

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names; one that is shared comes once, under its first name."""
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def _dense_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers with dotted names, of a sparse one its values: for what reads and writes the memory of all."""
        for name, buffer in self.named_buffers():
            if isinstance(buffer, SparseTensor):
                yield f"{name}.values", buffer._values()
            else:
                yield name, buffer

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name. Raises AttributeError when there is none."""
        module: Any = self
        for part in target.split(".") if target else []:
            module = getattr(module, part)
            if not isinstance(module, Tree):
                raise AttributeError(f"'{part}' of '{target}' is not a Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module under a dotted name; with `strict` only in place of one that is there. Raises AttributeError
        when there is none, or what is on the way is no module."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ArgumentError("a module cannot replace itself", hint="a name below it")
        parent = self.get_submodule(path)
        if strict and name not in parent._modules:
            raise AttributeError(f"'{type(parent).__name__}' has no submodule '{name}'")
        if name not in parent._modules and hasattr(parent, name):
            raise AttributeError(f"'{name}' of '{type(parent).__name__}' is not a Module")
        parent.add_module(name, module)

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

    def compile(self: Any, **options: Any) -> None:
        """Let calls of this module be recorded and run as graphs, in place; options as those of `ox.compile`.
        `torch.nn.Module.compile`."""
        from ox.compiler.compiled import compiled_module_call

        self._get_hooks().compiled = compiled_module_call(self, options)

    def train(self: Self, mode: bool = True) -> Self:
        """Switch dropout, batch statistics and the like on or off here, and by their own `train` in the modules below.
        Raises ArgumentError for a mode that is no bool."""
        if not isinstance(mode, bool):
            raise ArgumentError("mode must be True or False", got=repr(mode))
        object.__setattr__(self, "training", mode)  # a loaded file may have a parameter of that name
        CHANGES.count += 1
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set gradients to None, or fill them with zeros."""
        for p in self.parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad = cleared(p.grad)

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)  # type: ignore[arg-type]
        return self
