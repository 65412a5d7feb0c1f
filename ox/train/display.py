"""Progress output of a training run: a live progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ox.train.recipe.datasets import length

if TYPE_CHECKING:
    from ox.train.run.run import Run
    from ox.train.trainer import Trainer

BAR = 20
MOST_SHARED = 5  # weights that are listed by name


class Silent:
    """Prints nothing. `fit` calls these methods; a subclass overrides those that it shows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def begin(self, trainer: Trainer, run: Run, threads: int, notes: list[str]) -> None:
        """Called before the first step; `notes` are the differences to the run when it began or stopped."""

    def was_finished(self, run: Run) -> None:
        """The run to resume is finished already."""

    def epoch(self, trainer: Trainer) -> None:
        """An epoch begins or is resumed."""

    def step(self, trainer: Trainer, rate: float) -> None:
        """A step was taken, at `rate` samples a second."""

    def row(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """An epoch ended with the metrics of `row`."""

    def finished(self, trainer: Trainer, run: Run | None, result: dict[str, Any]) -> None:
        """The run ended; `run` is None if it has no folder."""


class Terminal(Silent):
    """A live progress bar on a terminal; one line per epoch in a file or a pipe."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)
        self.live: Any = None
        self.obstacle: Exception | None = None  # why the run cannot be exported

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            from rich.live import Live

            self.live = Live("", console=self.console, refresh_per_second=10, transient=True)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def print(self, *parts: Any) -> None:
        from rich.text import Text

        self.console.print(Text.assemble(*parts), soft_wrap=True)

    def was_finished(self, run: Run) -> None:
        result = run.result or {}
        done, epochs = result.get("epochs", 0), run.options.epochs
        stepped = run.options.max_steps is not None and result.get("steps", 0) >= run.options.max_steps
        early = f" (limit of {run.options.max_steps:,} steps)" if stepped else " (early stopping)"
        self.print(f"{run.folder} is finished: {done} of {epochs} epochs{early if done < epochs else ''}")
        more = f"ox train --resume {run.folder} {'--patience' if done < epochs else '--epochs'} N"
        if not stepped:
            self.print("to continue: ", (more, "bold"))

    def begin(self, trainer: Trainer, run: Run, threads: int, notes: list[str]) -> None:
        from ox._version import __version__

        options, progress = trainer.options, trainer.progress
        place = f"{trainer.device} ({threads} thread{'s' * (threads != 1)})"
        if (size := trainer.ranks.size) > 1:  # the numbers of their GPUs differ
            place = place.replace(trainer.device, trainer.device.partition(":")[0], 1)
            place = f"{size} processes · {place} each · batch size {size} × {trainer.train_batches.share.batch_size}"
        self.print(
            f"ox {__version__.removesuffix('.0')} · {place} · seed {options.seed} · run ", (str(run.folder), "bold")
        )
        sizes = ", ".join(f"{_length(part)} {name}" for name, part in trainer.data.parts().items())
        self.print(f"{trainer.recipe.name}: {sizes} · {_learning(trainer)}")
        for line in trainer.recipe.unused:
            self.print((f"note: {line}", "yellow"))
        if progress.step:
            self.print(f"resumed after step {of(progress.step, trainer.steps)}")
        for note in notes:
            self.print((note, "yellow"))

    def epoch(self, trainer: Trainer) -> None:
        self._draw(trainer, 0.0)

    def step(self, trainer: Trainer, rate: float) -> None:
        self._draw(trainer, rate)

    def _draw(self, trainer: Trainer, rate: float) -> None:
        if self.live is None:
            return
        progress, steps = trainer.progress, trainer.train_batches.steps
        done = 0.0 if steps is None else (progress.step - progress.epoch * steps) / steps
        loss = progress.running.loss_sum / (progress.running.weight or 1)
        self.live.update(self._line(trainer, progress.epoch + 1, done, f"  loss {loss:.3f}  {rate:,.0f} samples/s"))

    def _line(self, trainer: Trainer, epoch: int, done: float, rest: str) -> Any:
        from rich.text import Text

        total, filled = trainer.options.epochs, round(BAR * done)
        bar = [("━" * filled, "green" if done >= 1 else "cyan"), ("━" * (BAR - filled), "bright_black")]
        head = f"epoch {epoch:>{len(str(total))}}/{total}"
        return Text.assemble(head, *((Text("  "), *map(Text.assemble, bar)) if self.console.is_terminal else ()), rest)

    def row(self, trainer: Trainer, row: dict[str, Any]) -> None:
        best = trainer.progress.best is row
        figures = f"  loss {row['loss']:.3f}"
        if row["validation_loss"] is not None:
            figures += f"  validation {row['validation_loss']:.3f}"
        if row["validation_accuracy"] is not None:
            figures += f"  accuracy {percent(row['validation_accuracy']):>7}"
        for metric in trainer.metrics:
            value = row.get(f"validation_{metric.name}")
            if metric.name != "accuracy" and isinstance(value, float):
                figures += f"  {metric.name} {value:.4g}"
        line = self._line(trainer, row["epoch"], 1.0, f"{figures}  {row['samples_per_second']:,.0f} samples/s")
        self.console.print(line.append("  best", style="green") if best else line, soft_wrap=True)
        self.sample(row.get("sample"))

    def sample(self, text: str | None) -> None:
        """The sample of a recipe (text or a forecast), with a margin on the left."""
        for line in (text or "").splitlines():
            self.print(("  │ ", "bright_black"), line)

    def finished(self, trainer: Trainer, run: Run | None, result: dict[str, Any]) -> None:
        from ox.train.recipe.export_inputs import export_error

        self.obstacle = None if run is None else export_error(trainer)
        self.sample(result.get("sample"))
        held_back, parts = result["held_back"], [f"best on validation: epoch {result['best']['epoch']}"]
        if trainer.data.validation is None:
            parts = [f"no validation data: the weights are those of the last epoch, {result['best']['epoch']}"]
        not_all = trainer.options.epochs - trainer.progress.epoch
        if trainer.stepped_out:
            parts.insert(0, f"stopped after {trainer.options.max_steps:,} steps")
        elif not_all:
            parts.insert(0, f"stopped {not_all} epochs early: no improvement in {trainer.options.patience} epochs")
        if held_back is not None:
            scores = [percent(held_back["accuracy"]) if "accuracy" in held_back else f"loss {held_back['loss']:.4g}"]
            scores += [
                f"{name} {held_back[name]:.4g}"
                for name in (metric.name for metric in trainer.metrics)
                if name != "accuracy" and isinstance(held_back[name], float)
            ]
            parts.append(f"test set: {', '.join(scores)}")
        parts += [] if run is None else [f"curves {run.curves}"]
        self.print(" · ".join([*parts, f"{result['seconds']:.1f} s"]))


def _learning(trainer: Trainer) -> str:
    """What is trained: the recipe's model, or the layers of an ONNX file."""
    base = trainer.recipe.base
    if base is None:
        return f"{type(trainer.model).__name__}, {trainer.parameters:,} parameters"
    head = "its head" if base.classes is None else f"a new head of {base.classes} classes"
    of = sum(p.array.size for p in trainer.model.parameters())
    if base.layers == "head":
        layers = f"training {head}"
    else:
        layers = "training all layers" if base.classes is None else f"training all layers and {head}"
    kept = [f"{count:,} weights in {kind}" for kind, count in trainer.model.net.quantized.items()]
    quantized = f" · quantized and not trained: {', '.join(kept)}" if kept else ""
    widened = ", float16 weights in float32" if trainer.model.widened else ""
    shared = _shared(
        {p for p, x in trainer.model.net.named_parameters() if x.requires_grad}, trainer.model.net.shared_weights
    )
    return f"from {base.name}\n{layers}: {trainer.parameters:,} of {of:,} parameters{widened}{quantized}{shared}"


def _shared(learning: Collection[str], uses: Mapping[str, int]) -> str:
    """Which weights several nodes of a file use: an exporter may have stored equal ones once."""
    names = [f"{name} ({count})" for name, count in uses.items() if name in learning]
    more = f" and {len(names) - MOST_SHARED} more" if len(names) > MOST_SHARED else ""
    return f"\nused in several places, trained as one: {', '.join(names[:MOST_SHARED])}{more}" if names else ""


def of(step: int, steps: int | None) -> str:
    """``7 of 30``; ``7`` if the total is unknown."""
    return f"{step:,}" if steps is None else f"{step:,} of {steps:,}"


def _length(part: Any) -> str:
    count = length(part)
    return "a stream of" if count is None else f"{count:,}"


def percent(share: float) -> str:
    """``98.9 %``."""
    return f"{100 * share:.1f} %"
