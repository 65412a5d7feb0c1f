"""Hooks on a module's forward and backward, and on those of every module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ox.core.changes import CHANGES
from ox.core.mode import MODE
from ox.core.node import Handle
from ox.nn.base.gradient_hooks import BackwardHooks
from ox.nn.base.hook_mapping import Entry, mapping_of

if TYPE_CHECKING:
    from ox.nn.base.module import Module


class Hooks:
    """The hooks of one module, by kind; each entry is (hook, with_kwargs)."""

    def __init__(self) -> None:
        self.pre: list[Any] = []
        self.post: list[Any] = []
        self.backward_pre: list[Any] = []
        self.backward: list[Any] = []
        self.last_operator: list[Any] = []
        self.state_pre: list[Any] = []
        self.state_post: list[Any] = []
        self.load_pre: list[Any] = []
        self.load_post: list[Any] = []
        self.compiled: Any = None  # what runs the module in place of its forward and these hooks; Module.compile
        self.always: list[Any] = []  # the hooks of `post` that an error does not keep from being called

    def all(self, kind: str) -> list[Any]:
        """Those of every module, and this one's."""
        return [*getattr(GLOBAL_HOOKS, kind), *getattr(self, kind)] if GLOBAL_HOOKS.count else list(getattr(self, kind))

    def add(self, kind: str, hook: Callable[..., Any], with_kwargs: bool = False, prepend: bool = False) -> Handle:
        CHANGES.count += 1
        entries: list[Any] = getattr(self, kind)
        entry = Entry(hook, with_kwargs)
        entries.insert(0 if prepend else len(entries), entry)
        return Handle(entries, entry)

    def run(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `Module.compile` put in place, or the module's forward between its hooks."""
        return self.run_eagerly(module, args, kwargs) if self.compiled is None else self.compiled(*args, **kwargs)

    def run_eagerly(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's forward between its hooks."""
        always = self.all("always")
        if not always:
            return self._run(module, args, kwargs, [])
        called: list[Any] = []
        try:
            return self._run(module, args, kwargs, called)
        except Exception:
            for hook, with_kwargs in self.all("post"):
                if hook in always and hook not in called:
                    with suppress(Exception):  # the first error is the one to show
                        hook(module, args, kwargs, None) if with_kwargs else hook(module, args, None)
            raise

    def _run(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], called: list[Any]) -> Any:
        parts = MODE.get().parts
        # that of before the hooks: the first call of a lazy module changes its class
        forward = module.forward if parts is None else parts.forward(module)
        for hook, with_kwargs in self.all("pre"):
            changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if changed is not None and with_kwargs:
                args, kwargs = changed
            elif changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watched = bool(self.all("backward") or self.all("backward_pre")) and MODE.get().grad
        backward_hooks = BackwardHooks(self, module) if watched else None
        if backward_hooks is not None:
            args = backward_hooks.inputs(args)
        result = forward(*args, **kwargs)
        for hook, with_kwargs in self.all("post"):
            called.append(hook)
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            result = result if changed is None else changed
        if self.last_operator and (node := _node_of(result)) is not None:
            for hook, _ in self.last_operator:
                node.register_hook(partial(hook, module))
        return result if backward_hooks is None else backward_hooks.outputs(result)


def _node_of(result: Any) -> Any:
    """What made the first tensor of a result."""
    while isinstance(result, (dict, tuple, list)):
        result = next(iter(result.values() if isinstance(result, dict) else result), None)
    return getattr(result, "grad_fn", None)


class WithModule:
    """A hook that is called with its module; a deep copy of the module gets a hook of the copy."""

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook, self.module = hook, module

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module, *args)


class HookRegistry:
    """Mixed into Module: where hooks are registered."""

    _hooks: Hooks | None = None

    _forward_pre_hooks = mapping_of("pre")
    _forward_hooks = mapping_of("post")
    _backward_pre_hooks = mapping_of("backward_pre")
    _backward_hooks = mapping_of("backward")
    _state_dict_pre_hooks = mapping_of("state_pre")
    _state_dict_hooks = mapping_of("state_post")
    _load_state_dict_pre_hooks = mapping_of("load_pre")
    _load_state_dict_post_hooks = mapping_of("load_post")

    def _get_hooks(self) -> Hooks:
        if self._hooks is None:
            self._hooks = Hooks()
        return self._hooks

    def _hooks_of(self, kind: str) -> list[Callable[..., Any]]:
        """The registered hooks of a kind that has no options."""
        return [] if self._hooks is None else [entry[0] for entry in getattr(self._hooks, kind)]

    def _hook(self, kind: str, hook: Callable[..., Any], with_kwargs: bool = False, prepend: bool = False) -> Handle:
        return self._get_hooks().add(kind, hook, with_kwargs, prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args)`` before forward; what it returns, if not None, replaces the arguments."""
        return self._hook("pre", hook, with_kwargs, prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """Call ``hook(module, args, output)`` after forward; what it returns, if not None, replaces the output. With
        `always_call` it is also called, with None, when forward or a hook before it raised."""
        handle = self._hook("post", hook, with_kwargs, prepend)
        if always_call:
            self._get_hooks().always.append(hook)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are known; may replace them."""
        return self._hook("backward_pre", hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are known; may replace
        those of the inputs. Inputs and outputs count when they are tensors given or returned by position."""
        return self._hook("backward", hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> Handle:
        """The older form: call ``hook(module, grad_input, grad_output)`` with the gradients around the last operator of
        forward: for a Conv2d of input, weight and bias, without those that need none. May replace `grad_input`.
        A full hook gets those of the module's inputs."""
        return self._hook("last_operator", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, prefix, keep_vars)`` before `state_dict` looks at the module."""
        return self._hook("state_pre", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, state_dict, prefix, metadata)`` when the module is in the dict; it may change the
        dict."""
        return self._register_state_dict_hook(hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> Handle:
        """The same; what the hook of the outermost module returns, if not None, is the dict."""
        return self._hook("state_post", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, state_dict, prefix, metadata, strict, missing_keys, unexpected_keys, error_msgs)`` before
        `load_state_dict` looks at a dict, a copy that the hook may change; what it adds to `error_msgs` is an error."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> Handle:
        """The same; without the module as first argument unless `with_module`."""
        return self._hook("load_pre", WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, incompatible_keys)`` after `load_state_dict`; names that it takes out of the lists are
        no error."""
        return self._hook("load_post", hook)


class GlobalHooks(Hooks):
    """The hooks of every module; `count` is how many there are."""

    count = 0

    def add(self, kind: str, hook: Callable[..., Any], with_kwargs: bool = False, prepend: bool = False) -> Handle:
        self.count += 1
        return _GlobalHandle(super().add(kind, hook, with_kwargs, prepend))


class _GlobalHandle(Handle):
    def __init__(self, handle: Handle) -> None:
        super().__init__(handle._hooks, handle._entry)

    def remove(self) -> None:
        GLOBAL_HOOKS.count -= any(entry is self._entry for entry in self._hooks)
        super().remove()


GLOBAL_HOOKS = GlobalHooks()
NO_HOOKS = Hooks()  # of a module without hooks


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """`Module.register_forward_pre_hook` of every module, called before its own."""
    return GLOBAL_HOOKS.add("pre", hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> Handle:
    """`Module.register_forward_hook` of every module, called before its own."""
    if always_call:
        GLOBAL_HOOKS.always.append(hook)
    return GLOBAL_HOOKS.add("post", hook, with_kwargs)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """`Module.register_full_backward_pre_hook` of every module, called before its own."""
    return GLOBAL_HOOKS.add("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Handle:
    """`Module.register_full_backward_hook` of every module, called before its own."""
    return GLOBAL_HOOKS.add("backward", hook)
