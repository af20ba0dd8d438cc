"""Where batch norm over all processes cannot be had, or is not needed: what takes its place."""

from __future__ import annotations

import logging

from mmengine.model import revert_sync_batchnorm
from torch import nn


def of_one_process(model: nn.Module, logger: logging.Logger) -> nn.Module:
    """BatchNorm in the place of SyncBN, as one process has no other to exchange with."""
    count = _layers(model)
    if count:
        logger.info(
            f"{count} layers of SyncBN are BatchNorm in one process: statistics are those of the "
            "batch of this process"
        )
    return revert_sync_batchnorm(model)


def of_each_process(model: nn.Module, logger: logging.Logger, wanted: bool = False) -> nn.Module:
    """Batch norm within each process, where torch has none over all of them: on CPUs.

    Args:
        wanted: the config asks for SyncBN by ``sync_bn``.
    """
    if wanted or _layers(model):
        logger.warning(
            "SyncBN needs GPUs: on CPUs every process normalises its own images, so results "
            "depend on the number of processes"
        )
    return revert_sync_batchnorm(model)


def _layers(model: nn.Module) -> int:
    return sum(isinstance(part, nn.SyncBatchNorm) for part in model.modules())
