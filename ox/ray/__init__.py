"""ox on Ray: training by Ray Train, tuning by Ray Tune, serving by Ray Serve. Nothing else of ox imports Ray.

    from ox.ray import OxTrainer
    from ray.train import ScalingConfig

    OxTrainer(train_loop, scaling_config=ScalingConfig(num_workers=4)).fit()

See docs/ray.md. Without Ray, the import raises a DeviceError that names the extra to install.
"""

import os as _os
from importlib.util import find_spec as _find_spec

from ox.core.lazy import lazy_modules
from ox.errors import DeviceError as _DeviceError
from ox.installation import install_command as _install_command

if getattr(_find_spec("ray"), "origin", None) is None:  # a folder of this name is no Ray
    raise _DeviceError("Ray is not installed", hint=_install_command("ray"))

# A cluster that this process starts would send usage reports to Ray's makers (SECURITY.md).
if not _os.environ.get("RAY_USAGE_STATS_ENABLED"):
    _os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

_ELSEWHERE = {
    "OxConfig": "ox.ray.backend",
    "OxTrainer": "ox.ray.trainer",
    "dataset": "ox.ray.data",
    "deployment": "ox.ray.serving",
    "fit": "ox.ray.checkpoints",
}

__getattr__, __dir__ = lazy_modules(__name__, (), _ELSEWHERE)
