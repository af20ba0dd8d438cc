"""The dry run's questions to a segmentation model, in the order in which they make sense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polaformer.config import segmentation, segmentation_step, trial
from polaformer.config.keys import Finding
from polaformer.config.pipelines import kind_of
from polaformer.config.rules import drops_last
from polaformer.config.segmentation_heads import heads_in, is_segmentation


def head_inputs(cfg: Mapping[str, Any], wrong: set[str]) -> Iterator[Finding]:
    """Neck and heads read what is before them, found out with backbone and neck built alone.

    So a mistake here is told by the numbers to write, not by an assertion of the head.
    """
    if not is_segmentation(cfg) or wrong & {"model", "model.backbone", "model.neck"}:
        return
    model, scope = cfg["model"], cfg.get("default_scope")
    for key, head in heads_in(model):
        missing = trial.missing_arguments(head, scope) if "num_classes" not in head else []
        if "num_classes" in missing:
            text = "missing; write the number, or classes = (…) at the top for all heads and data"
            yield Finding(f"{key}.num_classes", text)
    backbone = trial.build_part(model.get("backbone"), "model.backbone", scope, wrong)
    if backbone is None:
        return
    neck = None
    if model.get("neck") is not None:
        neck_cfg = model["neck"]
        found = []
        if isinstance(neck_cfg, Mapping):
            found = list(segmentation.neck_mismatch(backbone, neck_cfg))
            yield from found
        neck = trial.build_part(neck_cfg, "model.neck", scope, wrong)
        if neck is None or found:
            return
    maps = segmentation.maps_of(backbone, neck)
    if maps is not None:
        yield from segmentation.head_mismatches(model, maps, scope)


class Examined:
    """A built segmentation model under the questions of a dry run.

    Args:
        model: on the meta device; its layers of SyncBN become plain ones here.
        size: height and width of a training image.
        processes: of the training.
    """

    def __init__(
        self, cfg: Mapping[str, Any], model: Any, size: tuple[int, int], processes: int
    ) -> None:
        from mmengine.model import revert_sync_batchnorm

        self.cfg, self.size, self.processes = cfg, size, processes
        self.synchronised = segmentation_step.synchronised(model)
        self.model = revert_sync_batchnorm(model)
        self.step = segmentation_step.one_by_one(self.model)
        loader = cfg.get("train_dataloader")
        self.loader: Mapping[str, Any] = loader if isinstance(loader, Mapping) else {}
        self.shape = (getattr(self.model.backbone, "in_channels", 3), *size)

    def findings(self, images: int | None) -> Iterator[Finding]:
        """All of them; ``images`` is the number of the training data, if known."""
        yield from self._synchronised()
        if self.loader:
            yield from segmentation_step.loss_mistakes(self.model, self.cfg["model"])
        if self.step is not None:
            try:
                yield from self._starved(images)
                yield from self._unread()
            except Exception:  # what stops this batch is told where the model's cost is measured
                return

    def _synchronised(self) -> Iterator[Finding]:
        batch = self.loader.get("batch_size", 1)
        if not self.synchronised or self.processes > 1 or not self.loader:
            return
        text = (
            f"SyncBN is plain batch norm in a single process: it normalises {batch} images a step"
        )
        key = next(_keys_of("SyncBN", "model", self.cfg["model"]), "model")
        yield Finding(key, text, note=True)

    def _starved(self, images: int | None) -> Iterator[Finding]:
        """A batch of one image, whole or the rest of an epoch, in front of a batch norm."""
        batch = self.loader.get("batch_size", 1)
        if not self.loader or not isinstance(batch, int):
            return
        share = -(-images // self.processes) if images else 0
        ending = kind_of(self.loader.get("sampler")) != "InfiniteSampler"
        rest = ending and batch > 1 and share % batch == 1 and not drops_last(self.loader)
        if batch != 1 and not rest:
            return
        assert self.step is not None
        starved = segmentation_step.starved_norms(self.step, (1, *self.shape))
        if self.processes > 1 and _has_gpus():
            starved = [name for name in starved if name not in self.synchronised]
        if not starved:
            return
        what = f"batch norm at {starved[0]} gets one value per channel, which torch refuses"
        if rest:
            text = f"the last batch of an epoch has 1 image: {what}; write drop_last=True"
            yield Finding("train_dataloader.drop_last", text)
        else:
            text = f"1 image per process: {what}; write batch_size=2 or more, or in the head "
            text += "norm_cfg=dict(type='GN', num_groups=…)"
            yield Finding("train_dataloader.batch_size", text)

    def _unread(self) -> Iterator[Finding]:
        if self.cfg.get("find_unused_parameters") or not self.loader:
            return
        if self.processes == 1 and not segmentation.leaves_maps(self.cfg["model"]):
            return
        assert self.step is not None
        names = segmentation_step.unread(self.step, (2, *self.shape))
        if not all(map(segmentation_step.compares, segmentation_step.heads_of(self.model))):
            names = [name for name in names if "_head." not in name]  # its loss may read more
        if not names:
            return
        told = _some(names)
        key, advice = self._where(names)
        text = f"no head depends on {told}: several processes refuse parameters without gradient; "
        text += f"{advice}, or write find_unused_parameters=True"
        yield Finding(key, text, note=self.processes == 1)

    def _where(self, names: Sequence[str]) -> tuple[str, str]:
        """The line to change, and how."""
        part = names[0].partition(".")[0]
        if part == "backbone":
            return "model.backbone.out_indices", "leave the maps that no head reads out of it"
        if part == "neck":
            key = "in_index" if self.cfg["model"].get("decode_head", {}).get("in_index") else ""
            where = f"model.decode_head.{key}".rstrip(".")
            return where, "read every map of the neck or let it give fewer"
        return f"model.{part}", "leave that part out"


def _keys_of(kind: str, key: str, node: Any) -> Iterator[str]:
    """Keys of every ``type`` that is ``kind``."""
    if isinstance(node, Mapping):
        if node.get("type") == kind:
            yield f"{key}.type"
        for name, child in node.items():
            yield from _keys_of(kind, f"{key}.{name}", child)
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _keys_of(kind, f"{key}.{index}", child)


def _has_gpus() -> bool:
    import torch

    return torch.cuda.is_available()


def _some(names: Sequence[str]) -> str:
    more = f" (and {len(names) - 2} more)" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
