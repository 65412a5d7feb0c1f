"""`OxTrainer`: Ray Train with ranks of `ox.distributed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from ox.ray.backend import OxConfig


class OxTrainer(DataParallelTrainer):  # type: ignore[misc]
    """Runs a training function on workers of Ray, which form a process group. As `ray.train.torch.TorchTrainer`.

    Args:
        train_loop_per_worker: the function; it may take `train_loop_config`. Inside it, `ox.distributed` is
            initialized: `DistributedDataParallel`, `DistributedSampler` and `ox.train.Trainer` work as under
            `ox launch`. It calls `ray.train.report`, or `ox.ray.fit(trainer)`, which does.
        train_loop_config: the argument of the function.
        ox_config: settings of the process group.
        scaling_config: the number of workers and their resources.
        run_config: name, storage of checkpoints, and restarts after failures (`FailureConfig`).
        datasets: Ray Datasets by name, which the workers share: `ox.ray.dataset(name)`.
        dataset_config: how they are split.

    Raises:
        ray.train.TrainingFailedError: by `fit`, if a worker failed more often than `FailureConfig` allows.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        ox_config: OxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=ox_config or OxConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
        )
