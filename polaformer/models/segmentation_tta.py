"""Test-time augmentation of a segmentor: the mean of the class probabilities of several views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from mmengine.model import BaseTTAModel
from torch import Tensor, nn

from polaformer.errors import UserError
from polaformer.models.segmentation_inference import (
    Source,
    View,
    label_image,
    rows_of_view,
    strip_bounds,
)
from polaformer.models.segmentor import Segmentor, put_labels, view_of
from polaformer.registry import MODELS

TINY = torch.finfo(torch.float32).tiny


@MODELS.register_module()
class SegmentationTTA(BaseTTAModel):
    """A ``Segmentor`` whose label of a pixel is the class most probable on average over views.

    The views of a picture, scaled and flipped, are brought back to its original size and the right
    way round, strip by strip; of each view only the logits at the head's stride are kept, with
    sliding windows not even these. The truth, and with it 'pixel_loss' (the negative logarithm of
    the mean probability), is taken from a view that was not flipped.

    In a config, beside the ``tta_pipeline``, whose ``PackSegInputs`` must keep 'ori_shape', 'flip'
    and 'flip_direction', as it does by default::

        tta_model = dict(type="polaformer.SegmentationTTA")
        tta_pipeline = [
            dict(type="polaformer.LoadImage"),
            dict(
                type="TestTimeAug",
                transforms=[
                    [dict(type="Resize", scale_factor=s, keep_ratio=True) for s in (0.75, 1.0)],
                    [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)],
                    [dict(type="polaformer.LoadMask")],
                    [dict(type="PackSegInputs")],
                ],
            ),
        ]

    Args:
        module: the segmentor, or its config; weights of a checkpoint go under 'module.'.
        data_preprocessor: that of ``module``, where ``module`` is a config without one.
    """

    def __init__(self, module: dict | nn.Module, data_preprocessor: dict | None = None) -> None:
        super().__init__(module=module, data_preprocessor=data_preprocessor)
        if not isinstance(self.module, Segmentor):
            raise UserError(
                f"tta_model: polaformer.SegmentationTTA merges views of polaformer.Segmentor, but "
                f"the model is a {type(self.module).__name__}"
            )

    @torch.no_grad()
    def test_step(self, data: Mapping[str, Sequence[Any]]) -> list[Any]:
        """One sample for every picture of a batch whose values hold one list per view."""
        sources: list[list[Source]] = []
        samples: list[list[Any]] = []
        views: list[list[View]] = []
        for values in zip(*data.values(), strict=True):
            batch = self.module.data_preprocessor(dict(zip(data, values, strict=True)), False)
            inputs, size = batch["inputs"], batch["inputs"].shape[-2:]
            sources.append(self.module.sources(inputs))
            samples.append(batch["data_samples"])
            views.append([view_of(sample, size) for sample in batch["data_samples"]])
        return [
            self._merge(*columns)
            for columns in zip(
                *(map(list, zip(*rows, strict=True)) for rows in (samples, sources, views)),
                strict=True,
            )
        ]

    def merge_preds(self, data_samples_list: Any) -> list[Any]:
        """Not used: predictions hold labels, and the mean is one of probabilities."""
        raise NotImplementedError("SegmentationTTA merges views in test_step")

    def _merge(self, samples: list[Any], sources: list[Source], views: list[View]) -> Any:
        """The sample of one picture, given that of each of its views."""
        upright = [i for i, view in enumerate(views) if view.flip is None]
        chosen = upright[0] if upright else 0
        merged, view = samples[chosen], views[chosen]
        if not upright:
            if "gt_sem_seg" in merged:
                raise UserError(
                    "every view of tta_pipeline is flipped, and so may be its truth; add a view "
                    "with dict(type='RandomFlip', prob=0.0)"
                )
            merged.set_metainfo({"flip": False, "flip_direction": None})
        sizes = {one.size for one in views}
        if len(sizes) > 1:
            raise UserError(f"views of one picture have several original sizes: {sorted(sizes)}")
        truth = self.module.truth_of(merged, view)
        strips = mean_strips(sources, views)
        channels, threshold = sources[0].channels, self.module.threshold
        labels, loss = label_image(strips, view.size, channels, threshold, truth)
        put_labels(merged, labels, loss)
        return merged


def mean_strips(
    sources: Sequence[Source], views: Sequence[View]
) -> Iterator[tuple[int, int, Tensor]]:
    """Strips of logits [C, r, W] whose softmax (sigmoid, with one channel) is the views' mean."""
    channels, size = sources[0].channels, views[0].size
    widest = max(source.size[1] for source in sources)
    for start, stop in strip_bounds(size, channels, widest):
        total: Tensor | None = None
        for source, view in zip(sources, views, strict=True):
            logits = rows_of_view(source, view, start, stop)
            p = logits.sigmoid() if channels == 1 else logits.softmax(dim=0)
            total = p if total is None else total.add_(p)
        assert total is not None
        mean = total.div_(len(views))
        yield start, stop, mean.logit(eps=1e-7) if channels == 1 else mean.clamp_(min=TINY).log_()
