"""`Generator`: the state that random numbers come from, of ox's own stream and of PyTorch's."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from ox.core import operator, random_stream
from ox.core.constants import number
from ox.core.device import CPU
from ox.core.device import device as Device
from ox.core.mode import MODE, cannot_record
from ox.core.mt19937 import Words
from ox.core.mt19937.switch import is_torch_compatible
from ox.core.random_stream import stream_version
from ox.core.symbolic import size_tensor
from ox.dtypes import onnx_type, uint64
from ox.errors import ArgumentError, OxError, RecordError


class Generator:
    """A stream of random numbers: Philox 4x32-10 under a key, at a counter that moves on. `torch.Generator`.

    Each kind of draw (`ox.core.random_stream.KINDS`) has a key of its own, which follows from `key`. In streams of
    `version` 1 it is `key` itself.

    `key` and `counter` are uint64 tensors of no dimensions, so a recorded step takes them in and hands the counter on.
    Under `torch_compatible(True)` the numbers are those of PyTorch's generator of the same seed; the two streams know
    nothing of each other.

    Args:
        seed: any int; the same seed gives the same numbers on every device.
        device: may be given as in PyTorch, also as the first argument; one stream serves every device.
    """

    version = 1  # of a generator that was pickled without

    def __init__(self, seed: int | str | None = None, device: Any = None) -> None:
        if isinstance(seed, str):
            seed, device = None, seed
        self.device = CPU if device is None else Device(str(device))
        self.manual_seed(secrets.randbits(63) if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` from its beginning."""
        self._begin(int(seed), 0, stream_version.current)
        return self

    def _begin(self, seed: int, counter: int, version: int) -> None:
        self.version = version
        self._words: Words | None = None
        words = [np.asarray(seed % (1 << 64), np.uint64), np.asarray(counter, np.uint64)]
        self._seed = seed
        self.key, self.counter = (operator.make_tensor(word) for word in words)

    def key_of(self, kind: str) -> Any:
        """The key for a kind of draws: `key`, combined with the kind; uint64 []."""
        if self.version == 1:
            return self.key
        word = random_stream.word(kind, self.version)
        if MODE.get().recording is None:
            return operator.make_tensor(np.asarray(self.key.array ^ np.uint64(word)))
        return operator.OPS["BitwiseXor"](self.key, number(word, uint64))

    def _skip(self, count: int, kind: str) -> tuple[Any, Any]:
        """Key and counter from which the next `count` numbers are drawn; the stream goes on behind them."""
        key, counter, blocks = self.key_of(kind), self.counter, (count + 3) // 4
        recording = MODE.get().recording
        if recording is None:
            self.counter = operator.make_tensor(np.asarray(np.add(counter.array, np.uint64(blocks))))
        else:
            recording.on_random(self)
            add, cast, reshape = operator.OPS["Add"], operator.OPS["Cast"], operator.OPS["Reshape"]
            number = reshape(size_tensor((blocks,)), size_tensor(()))
            self.counter = add(counter, cast(number, to=onnx_type(uint64)))
        return key, counter

    def words(self) -> Words:
        """The Mersenne Twister of this seed, which `torch_compatible(True)` draws from."""
        if self._words is None:
            self._words = Words(self._seed)
        return self._words

    def initial_seed(self) -> int:
        """The seed that the stream began with."""
        return int(self._seed)

    def seed(self) -> int:
        """Seed the stream from the operating system, and return that seed."""
        return self.manual_seed(secrets.randbits(63)).initial_seed()

    def get_state(self) -> Any:
        """Seed, counter and version: plain numbers that go into any file. Under `torch_compatible(True)` what PyTorch
        gives there: a uint8 tensor [5056], which its `set_state` takes, too."""
        if is_torch_compatible():
            return operator.make_tensor(self.words().get_state())
        return {"seed": self._seed, "counter": int(self.counter.array), "version": self.version}

    def set_state(self, state: Any) -> None:
        """Go on from a state that `get_state` gave, or under `torch_compatible(True)` PyTorch's `get_state`.

        Raises:
            ArgumentError: what is no state, one of the other kind of stream, or one of a newer version.
        """
        if is_torch_compatible():
            self._set_words(state)
            return
        try:
            seed, counter = int(state["seed"]), int(state["counter"])
            np.asarray(counter, np.uint64)
        except (KeyError, TypeError, ValueError, OverflowError, IndexError, OxError):
            raise ArgumentError(
                "this is no state of a generator",
                expected="what get_state() gave: {'seed': ..., 'counter': ..., 'version': ...}",
                got=type(state).__name__ if hasattr(state, "shape") else repr(state),
                hint="ox.random.torch_compatible(True) before a state that is a uint8 tensor",
            ) from None
        self._begin(seed, counter, random_stream.checked(state.get("version", 1)))

    def _set_words(self, state: Any) -> None:
        try:
            self._words = Words.from_state(_bytes(state))
        except ValueError as error:
            raise ArgumentError(
                "this is no state of a generator under torch_compatible(True)",
                expected="what get_state() gave under it, or PyTorch's: uint8 [5056]",
                got=f"a dict, {state}" if isinstance(state, dict) else str(error),
                hint="ox.random.torch_compatible(False) before a state of seed and counter",
            ) from None
        self._seed = self._words.seed

    def clone_state(self) -> Generator:
        """Another generator at the same place of the same stream. `torch.Generator.clone_state`."""
        made = Generator(0, self.device)
        made._restore(self._snapshot())
        return made

    def _snapshot(self) -> tuple[Any, ...]:
        """All that the next numbers depend on, of both streams."""
        return self._seed, self.key, self.counter, self._words and self._words.copy(), self.version

    def _restore(self, state: tuple[Any, ...]) -> None:
        self._seed, self.key, self.counter, words, self.version = state
        self._words = words and words.copy()

    def _changed_since(self, state: tuple[Any, ...]) -> bool:
        """Whether anything was drawn since `_snapshot` gave `state`."""
        words = state[3]
        if self._words is None or words is None:
            return self.counter is not state[2] or self._words is not words
        return self.counter is not state[2] or bool((self._words.get_state() != words.get_state()).any())


def _bytes(state: Any) -> Any:
    """The state's bytes in an array. Raises ValueError for another kind of object."""
    array = getattr(state, "array", state)
    array = np.asarray(array.get() if hasattr(array, "get") and not isinstance(array, dict) else array)
    if array.dtype != np.uint8:
        raise ValueError(f"{array.dtype} {list(array.shape)}")
    return array


def words_of(generator: Generator | None) -> Words | None:
    """Where numbers come from under `torch_compatible(True)`; None where it is off.

    Raises:
        RecordError: under a recording.
    """
    if not is_torch_compatible():
        return None
    if MODE.get().recording is not None:
        cannot_record(
            RecordError(
                "PyTorch's random numbers have no form in operators, so they cannot be recorded",
                hint="with ox.random.torch_compatible(False): around what records, or model.eval() before an export",
            )
        )
    return (default_generator if generator is None else generator).words()


default_generator = Generator(0)
