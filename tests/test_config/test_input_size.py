"""Image sizes read off transforms."""

from __future__ import annotations

import pytest

from polaformer.config.input_size import largest_size, padded

RESIZE = dict(type="Resize", scale=(1333, 800), keep_ratio=True)
SCALES = [(1333, side) for side in range(480, 801, 32)]


@pytest.mark.parametrize(
    "steps, size",
    [
        ([RESIZE], (800, 1333)),
        ([dict(RESIZE, scale=(800, 1333))], (800, 1333)),
        ([dict(RESIZE, keep_ratio=False, scale=(640, 320))], (320, 640)),
        ([dict(type="mmdet.Resize", scale=512)], (512, 512)),
        ([dict(type="RandomChoiceResize", scales=SCALES, keep_ratio=True)], (800, 1333)),
        (
            [dict(type="RandomResize", scale=[(1333, 640), (1333, 800)], keep_ratio=True)],
            (800, 1333),
        ),
        ([dict(type="RandomResize", scale=(2048, 512), ratio_range=(0.5, 2.0))], (1024, 4096)),
        (
            [
                dict(type="RandomResize", scale=(2048, 512), ratio_range=(0.5, 2.0)),
                dict(type="RandomCrop", crop_size=(512, 512)),
            ],
            (512, 512),
        ),
        ([RESIZE, dict(type="RandomCrop", crop_size=(900, 900))], (800, 900)),
        (
            [
                dict(
                    type="RandomChoice",
                    transforms=[
                        [dict(type="RandomChoiceResize", scales=[(1333, 480)], keep_ratio=True)],
                        [dict(type="RandomCrop", crop_size=(384, 600)), RESIZE],
                    ],
                )
            ],
            (800, 1333),
        ),
        ([dict(type="Pad", size=(640, 640))], (640, 640)),
        (dict(type="polaformer.ClassificationTransform", input_size=224), (224, 224)),
        ([dict(type="polaformer.LoadImage"), dict(type="PackDetInputs")], None),
        ([], None),
        (None, None),
    ],
)
def test_largest_size(steps, size):
    assert largest_size(steps) == size


def test_padding_to_a_multiple():
    assert padded((800, 1333), 32) == (800, 1344)
    assert padded((32, 33), 1) == (32, 33)
