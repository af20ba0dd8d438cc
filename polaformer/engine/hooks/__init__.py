"""Hooks of the training loop; importing this package registers them."""

from polaformer.engine.hooks.checkpoint import CheckpointHook
from polaformer.engine.hooks.early_stopping import EarlyStoppingHook
from polaformer.engine.hooks.health import HealthHook, TrainingDiverged
from polaformer.engine.hooks.interrupt import InterruptHook
from polaformer.engine.hooks.logger import LoggerHook
from polaformer.engine.hooks.pictures import PictureHook
from polaformer.engine.hooks.progress import ProgressHook
from polaformer.engine.hooks.record import RunCardHook
from polaformer.engine.hooks.seed import StepSeedHook
from polaformer.engine.hooks.throughput import ThroughputHook

__all__ = [
    "CheckpointHook",
    "EarlyStoppingHook",
    "HealthHook",
    "InterruptHook",
    "LoggerHook",
    "PictureHook",
    "ProgressHook",
    "RunCardHook",
    "StepSeedHook",
    "ThroughputHook",
    "TrainingDiverged",
]
