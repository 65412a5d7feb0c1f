"""ZeroRedundancyOptimizer: each process keeps the state of a part of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ox import distributed as dist
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.core.operator import make_tensor
from ox.distributed.coalesced import broadcast_coalesced
from ox.dtypes import ALL
from ox.errors import ArgumentError, RecordError
from ox.optim.lbfgs import LBFGS
from ox.optim.optimizer import Optimizer
from ox.tensors.tensor import Tensor

LARGE = 1 << 16  # bytes from which a parameter is broadcast by itself, without a copy
_TYPES = {dtype.name: dtype for dtype in ALL}


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state is spread over the ranks: ZeRO, stage 1 (Rajbhandari et al., 2020).
    `torch.distributed.optim.ZeroRedundancyOptimizer`.

    Every rank holds all parameters and gradients, as under DistributedDataParallel; it updates its part of the
    parameters, for which it alone keeps state, and gives them to the others. Parameters are dealt out by size, the
    largest first, each to the rank that has least.

    Groups, schedulers, clipping and a GradScaler work as on the optimizer inside. A state_dict is that of the optimizer
    inside, for all parameters: `consolidate_state_dict` brings it together on one rank first. It loads into that
    optimizer, or into one over another number of ranks.

    Args:
        params: as of any optimizer, in the same order on all ranks.
        optimizer_class: the optimizer, `ox.optim.Adam` for example.
        process_group: the ranks; all by default.
        parameters_as_bucket_view: let the parameters of a rank lie in one array, so that they travel without a copy.
            Who shared a parameter's memory before does not afterwards.
        overlap_with_ddp: must be False: the update follows the backward.
        defaults: of the optimizer: ``lr=1e-3``.

    Raises:
        DistributedError: there is no process group.
        ArgumentError: LBFGS, which has one state for all parameters; `overlap_with_ddp`; ranks with different
            parameters.
    """

    optim: Optimizer

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: Callable[..., Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise ArgumentError(
                "an update of shards does not begin before the backward has ended",
                expected="overlap_with_ddp=False",
                got="overlap_with_ddp=True",
            )
        kind: Any = optimizer_class
        if isinstance(kind, type) and issubclass(kind, LBFGS):
            raise ArgumentError(
                "ZeroRedundancyOptimizer cannot divide the state of LBFGS: it has one state for all parameters"
            )
        self.process_group = process_group
        self.world, self.rank = dist.get_world_size(process_group), dist.get_rank(process_group)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        # it makes state for what it steps on, and so for this rank's part only
        self.optim = kind(params, **defaults)
        self.defaults, self.param_groups = self.optim.defaults, self.optim.param_groups
        self._owner: dict[int, int] = {}
        self._load = [0] * self.world
        self._gathered_state: dict[int, dict[str, Any]] | None = None
        self._flat: list[tuple[int, Tensor, list[Tensor]]] = []
        for group in self.param_groups:
            self._deal(group["params"])

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of this rank's parameters."""
        return self.optim.state

    def _deal(self, params: list[Tensor]) -> None:
        gathered: list[Any] = [None] * self.world
        mine = [[list(p.static_shape), p.array.dtype.name, bool(p.requires_grad)] for p in params]
        dist.all_gather_object(gathered, mine, self.process_group)
        for rank, theirs in enumerate(gathered):
            if theirs != gathered[0]:
                raise ArgumentError(
                    f"ZeroRedundancyOptimizer: the parameters of rank {rank} are not those of rank 0",
                    expected=f"{len(gathered[0])} parameters of the same shapes and types, in the same order",
                    got=_difference(gathered[0], theirs),
                )
        for p in sorted(params, key=lambda p: -p.array.size):
            least = self._load.index(min(self._load))
            self._owner[id(p)] = least
            self._load[least] += int(p.array.size)
        if self.parameters_as_bucket_view:
            self._side_by_side(params)

    def _side_by_side(self, params: list[Tensor]) -> None:
        parts: dict[Any, list[Tensor]] = {}
        for p in params:
            parts.setdefault((self._owner[id(p)], p.array.dtype.name, str(p.device)), []).append(p)
        for (owner, _, _), members in parts.items():
            flat = np.concatenate([p.array.reshape(-1) for p in members])
            end = 0
            for p in members:
                start, end = end, end + p.array.size
                p.array = flat[start:end].reshape(p.static_shape)
            self._flat.append((owner, make_tensor(flat), members))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train further parameters; all ranks do so together."""
        self.optim.add_param_group(param_group)
        self._deal(self.param_groups[-1]["params"])

    # -- a step ------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's parameters, and give and take the others. All ranks do so together."""
        if MODE.get().recording is not None:
            cannot_record(
                RecordError("a step of ZeroRedundancyOptimizer cannot be recorded: a graph does not know of ranks")
            )
        loss = None
        if closure is not None:
            with switch_mode(grad=True):
                loss = closure()
        self._gathered_state = None
        everything = [group["params"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                group["params"] = [p for p in group["params"] if self._owner[id(p)] == self.rank]
            self.optim.step(**kwargs)
        finally:
            for group, params in zip(self.param_groups, everything, strict=True):
                group["params"] = params
        self._exchange()
        return loss

    def _exchange(self) -> None:
        """Every rank's parameters become those of their owners."""
        by = "ZeroRedundancyOptimizer.step"
        if self._flat:
            jobs = [(owner, flat, members) for owner, flat, members in self._flat]
        else:
            jobs = [(self._owner[id(p)], make_tensor(p.array), [p]) for p in self._trained() if _is_sent_alone(p)]
        works = [
            (dist.broadcast(flat, self._global(owner), self.process_group, async_op=True), owner, members)
            for owner, flat, members in jobs
        ]
        if not self._flat:
            small = [p for p in self._trained() if not _is_sent_alone(p)]
            for owner in range(self.world):
                broadcast_coalesced([p for p in small if self._owner[id(p)] == owner], owner, self.process_group, by)
        for work, owner, members in works:
            assert work is not None  # with async_op there is one
            work.wait()
            for p in members if owner != self.rank else ():
                p.count_write(by)

    def _trained(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _global(self, rank: int) -> int:
        return dist.get_global_rank(self.process_group, rank)

    # -- state -------------------------------------------------------------------------------------------------

    def _numbered(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the whole state together on rank `to` of the program, where `state_dict` then gives it, until the next
        step. All ranks call this together. The others hold no more memory for it than before."""
        here = dist.get_group_rank(self.process_group, to)
        own = [(number, self.state[p]) for number, p in enumerate(self._numbered()) if p in self.state]
        gathered: list[Any] = [None] * self.world
        dist.all_gather_object(
            gathered, [[number, _shapes_and_types(state)] for number, state in own], self.process_group
        )
        self._gathered_state = {} if self.rank == here else None
        for rank, described in enumerate(gathered):
            for k, (number, entries) in enumerate(described):
                state = own[k][1] if rank == self.rank else {}
                for name, form in entries.items():
                    if self.rank == here:
                        state = dict(state)
                        if rank != here:
                            state[name] = self._received(form, rank)
                    elif rank == self.rank and form[0] == "tensor":
                        array = np.ascontiguousarray(state[name].array)
                        dist.send(make_tensor(array.reshape(-1)), to, self.process_group)
                if self._gathered_state is not None:
                    self._gathered_state[number] = state

    def _received(self, form: list[Any], rank: int) -> Any:
        if form[0] != "tensor":
            return form[1]
        shape = tuple(form[2])
        flat = np.empty(int(np.prod(shape, dtype=np.int64)), _TYPES[form[1]])
        dist.recv(make_tensor(flat), self._global(rank), self.process_group)
        return make_tensor(flat.reshape(shape))

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, in the layout of the optimizer inside.

        Raises:
            ArgumentError: it was not brought together on this rank since the last step.
        """
        if self._gathered_state is None and self.world > 1:
            raise ArgumentError(
                f"the optimizer's state is spread over {self.world} ranks",
                got=f"no consolidate_state_dict(to={dist.get_rank()}) since the last step",
                hint="optimizer.consolidate_state_dict(to=0) on every rank, then state_dict() on rank 0",
            )
        for hook in list(self._hooks("state_pre")):
            hook(self)
        given = self.optim.state_dict()
        if self._gathered_state is not None:
            given["state"] = {number: dict(self._gathered_state[number]) for number in sorted(self._gathered_state)}
        for hook in list(self._hooks("state_post")):
            changed = hook(self, given)
            given = given if changed is None else changed
        return given

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from the state of all parameters, of which this rank copies its part. Raises LoadError as any optimizer
        does."""
        for hook in list(self._hooks("load_pre")):
            changed = hook(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        numbered = self._numbered()
        given = [n for group in state_dict["param_groups"] for n in group["params"]]
        mine = {str(n) for n, p in zip(given, numbered, strict=False) if self._owner[id(p)] == self.rank}
        own = {n: state for n, state in state_dict["state"].items() if str(n) in mine}
        self.optim.load_state_dict({**state_dict, "state": own})
        self._gathered_state = None
        for hook in list(self._hooks("load_post")):
            hook(self)

    def __repr__(self) -> str:
        return f"ZeroRedundancyOptimizer of {self.world} ranks: {self.optim!r}"


def _is_sent_alone(p: Tensor) -> bool:
    array = p.array
    return bool(array.nbytes >= LARGE and array.flags.c_contiguous and getattr(array.flags, "writeable", True))


def _shapes_and_types(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: ["tensor", x.array.dtype.name, list(x.static_shape)] if isinstance(x, Tensor) else ["value", x]
        for name, x in state.items()
    }


def _difference(ours: list[Any], theirs: list[Any]) -> str:
    if len(ours) != len(theirs):
        return f"{len(theirs)} parameters"
    number = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    texts = [
        f"{kind} {shape}{'' if trained else ' without requires_grad'}"
        for shape, kind, trained in (x[number] for x in (theirs, ours))
    ]
    return f"parameter {number} is {texts[0]}, not {texts[1]}"


__all__ = ["ZeroRedundancyOptimizer"]
