"""Which texts have a slot of the cache, and how much memory slots and blocks take together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.cache_slots import CacheShape, CacheSlots
from ox.serve.generation.decoder_memory import HOST, HostMemory
from ox.serve.generation.decoder_run import DecoderRun
from ox.serve.generation.prefix_cache import BLOCK, PrefixCache
from ox.serve.generation.text import Text
from ox.serve.generation.waiting_texts import WaitingTexts
from ox.serve.gpu_budget import InsufficientMemoryError

MIB = 1 << 20
SMALLEST = 8 * BLOCK  # tokens of a slot
SHARE = 4  # the part of the available memory that caches take by default


def cache_budget(options: GenerationOptions, memory: HostMemory = HOST, free: int | None = None) -> int:
    """Bytes of a model's cache, in the memory where it lies.

    Args:
        free: what models may still take of it; None for all that there is.

    Raises:
        InsufficientMemoryError: more than there is.
    """
    available = memory.available()
    if options.cache_mib is None:
        return min(available, available if free is None else free) // SHARE
    if options.cache_mib * MIB > available:
        raise InsufficientMemoryError(
            "the cache does not fit into the memory that there is",
            expected=f"at most {available // MIB:,} MiB",
            got=f"cache_mib = {options.cache_mib:,}",
        )
    return options.cache_mib * MIB


class Scheduler:
    """Slots for the texts that run, in rows without gaps, and blocks for what may be needed again; both from one
    budget. Called by the engine's thread only. Where steps are captured, all slots have the size of the context from
    the beginning, and there are as many as fit.

    Args:
        shapes: of the cache's inputs.
        run: what works on the slots.
        most_texts: that run at the same time.
        context: the most tokens of a text.
        budget: bytes.

    Raises:
        InsufficientMemoryError: the budget does not hold one text as long as the context.
    """

    def __init__(
        self, shapes: dict[str, CacheShape], run: DecoderRun, most_texts: int, context: int, budget: int
    ) -> None:
        self.waiting = WaitingTexts()
        self.texts: list[Text] = []  # by row
        self.preemptions = 0
        self._most_texts, self._context, self._budget = most_texts, context, budget
        self._admissions = 0
        token_bytes = sum(shape.nbytes for shape in shapes.values())
        if context * token_bytes > budget:
            raise InsufficientMemoryError(
                "the cache does not fit into the memory for it",
                expected=f"{context * token_bytes / MIB:,.1f} MiB, for one text of {context:,} tokens of "
                f"{token_bytes:,} bytes each",
                got=f"{budget / MIB:,.1f} MiB",
                hint="generation = { cache_mib = ... } in ox.toml; the cache of a draft model is a part of it",
            )
        self._fixed = run.memory.captures
        if self._fixed:
            self._most_texts = most_texts = min(most_texts, budget // (context * token_bytes))
        rows, capacity = (most_texts, context) if self._fixed else (1, self._capacity(1))
        self.slots = CacheSlots(shapes, most_texts, capacity, run.memory, rows)
        self.prefixes = PrefixCache(self.slots, budget)
        # that take memory: on the host those that were in use since the slots were made
        self._most_rows = rows if self._fixed else 0
        run.attach(self.slots)

    @property
    def most_blocks(self) -> int:
        return self._budget // self.prefixes.block_bytes

    @property
    def used_blocks(self) -> int:
        """Blocks of memory: of slots, and those kept for later."""
        return -(-len(self.texts) * self.slots.capacity // BLOCK) + self.prefixes.blocks

    def state(self) -> dict[str, int]:
        """Texts that run, and blocks of memory: used, of these kept for later, and all."""
        blocks = {"blocks": self.used_blocks, "kept_blocks": self.prefixes.blocks, "most_blocks": self.most_blocks}
        return {"running": len(self.texts), **blocks}

    def pause(self, now: float) -> float | None:
        """Seconds in which nothing happens by itself: until the first deadline; None without one."""
        times = []
        for text in (*self.texts, *self.waiting):
            if text.request.deadline is not None:
                times.append(text.request.deadline - now)
            elif text.cached is None:
                times.append(text.start_by - now)
        return max(0.0, min(times)) if times else None

    # ---- slots

    def admit(self, now: float) -> list[Text]:
        """Gives slots to waiting texts, as far as there are slots and memory. A text of a higher priority takes the
        slot of one of a lower priority, and any text that of one whose client does not read."""
        admitted: list[Text] = []
        while (text := self.waiting.first(now)) is not None:
            while not self._has_room(text):
                victim = max(self.texts, key=_least_wanted)
                if not victim.handle.paused and victim.level <= text.level:
                    return admitted
                self.preempt(victim)
            self.waiting.take(text)
            self._admissions += 1
            text.row, text.admitted = len(self.texts), self._admissions
            self.texts.append(text)
            self._fit()
            admitted.append(text)
        return admitted

    def reserve(self) -> None:
        """Makes room for one more token of each text; if there is none, texts lose their slots until there is."""
        while len(self.texts) > 1 and not self._fits(len(self.texts), self._needed(self.texts)):
            self.preempt(max(self.texts, key=_least_wanted))
        self._fit()

    def preempt(self, text: Text) -> None:
        """Takes its slot; it waits for another one. What fits into the blocks is not computed again then."""
        self.save(text)
        self.remove(text)
        text.computed, text.decoding = 0, False
        self.waiting.back(text)
        self.preemptions += 1

    def remove(self, text: Text) -> None:
        """A text leaves its slot; the last row fills the gap."""
        last = self.texts[-1]
        if last is not text:
            self.slots.move(last.row, text.row, last.computed)  # first: if it fails, no text is lost
            last.row = text.row
            self.texts[text.row] = last
        self.texts.pop()
        text.row = -1
        if not self.texts and not self._fixed and not self._fits(2 * self._most_rows, self.slots.capacity):
            with suppress(Exception):  # of a device that has failed, as the next text will find
                self._resize(self._capacity(1))  # else the next text takes them as they are: new ones cost time

    def save(self, text: Text) -> None:
        """Keeps what was computed for a text, for others that begin alike and for itself."""
        self._limit_blocks()
        self.prefixes.save(text.tokens[: text.computed], text.row)

    def runnable(self) -> int:
        """Moves the texts that go on to the first rows; how many they are."""
        front, back = 0, len(self.texts) - 1
        while True:
            while front <= back and self.texts[front].runnable:
                front += 1
            while front <= back and not self.texts[back].runnable:
                back -= 1
            if front > back:
                return front
            self._swap(self.texts[front], self.texts[back])

    def join(self, texts: Sequence[Text]) -> int:
        """Moves texts to rows one after the other, the first of which is returned."""
        first = min(min(text.row for text in texts), len(self.texts) - len(texts))
        for row, text in enumerate(texts, first):
            self._swap(text, self.texts[row])
        return first

    def _swap(self, one: Text, other: Text) -> None:
        if one is other:
            return
        self.slots.swap(one.row, other.row, max(one.computed, other.computed))
        self.texts[one.row], self.texts[other.row] = other, one
        one.row, other.row = other.row, one.row

    # ---- memory

    def _has_room(self, text: Text) -> bool:
        rows = len(self.texts) + 1
        return rows <= self._most_texts and self._fits(rows, self._needed([*self.texts, text]))

    def _fits(self, rows: int, capacity: int) -> bool:
        return rows * capacity * self.slots.token_bytes <= self._budget

    def _needed(self, texts: Iterable[Text]) -> int:
        return self._capacity(max(len(text.tokens) + 1 for text in texts))

    def _capacity(self, tokens: int) -> int:
        """The tokens of a slot that holds so many: a power of two, so that slots seldom grow."""
        return min(max(SMALLEST, 1 << (tokens - 1).bit_length()), self._context)

    def _fit(self) -> None:
        """Makes the slots as large as these texts need, and where that leaves half of the memory, as large as they may
        become: to grow slots with texts in them holds all of them up."""
        if self._fixed:
            return
        rows = max(self._most_rows, len(self.texts))
        capacity = self._needed(self.texts)
        whole = self._capacity(max(text.prompt_length + text.most for text in self.texts))
        while whole > capacity and not self._fits(2 * rows, whole):
            whole //= 2
        capacity = max(capacity, whole)
        outgrown = not self._fits(rows, self.slots.capacity)
        if (
            capacity > self.slots.capacity
            or (outgrown and capacity < self.slots.capacity)
            or not self._fits(rows, capacity)
            or len(self.texts) > self.slots.rows_there
        ):
            self._resize(capacity)
        self._most_rows = max(self._most_rows, len(self.texts))
        self._limit_blocks()

    def _resize(self, capacity: int) -> None:
        rows = len(self.texts)
        if not self.slots.memory.is_lazy:  # a power of two, so that slots seldom grow, as far as they fit
            fitting = self._budget // (capacity * self.slots.token_bytes)
            rows = max(rows, min(1 << max(0, rows - 1).bit_length(), self._most_texts, fitting))
        self.prefixes.limit(self._budget - rows * capacity * self.slots.token_bytes)
        self.slots.resize(capacity, [text.computed for text in self.texts], rows)
        self._most_rows = rows

    def _limit_blocks(self) -> None:
        self.prefixes.limit(self._budget - self._most_rows * self.slots.capacity * self.slots.token_bytes)


def _least_wanted(text: Text) -> tuple[bool, int, float]:
    return text.handle.paused, text.level, text.arrived
