"""The published resize and crop, and augmentation as a function of the seed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from picture_sets import noisy
from PIL import Image

from polaformer.datasets import ClassificationTransform
from polaformer.errors import UserError
from polaformer.registry import TRANSFORMS


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@pytest.fixture
def picture() -> Image.Image:
    """A gradient with noise, 180 wide and 120 high, different at every pixel."""
    rows, columns = np.mgrid[0:120, 0:180]
    pixels = np.stack([columns, rows * 2, 255 - columns], axis=-1)
    return Image.blend(
        Image.fromarray(pixels.astype(np.uint8)), noisy((128,) * 3, 0, (120, 180)), 0.2
    )


AUGMENTATIONS = {
    "published": {},
    "crop only": {"auto_augment": None, "color_jitter": None, "hflip": 0.0},
    "jitter": {"auto_augment": None, "color_jitter": 0.4, "vflip": 0.5},
    "autoaugment": {"auto_augment": "original"},
    "augmix": {"auto_augment": "augmix-m3-w3"},
    "random interpolation": {"interpolation": "random"},
    "digits": {
        "auto_augment": None,
        "color_jitter": None,
        "hflip": 0.0,
        "scale": None,
        "affine": {"degrees": 10, "translate": (0.1, 0.1), "scale": (0.9, 1.1)},
    },
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_seed_of_three_generators_fixes_the_result(picture, name):
    transform = ClassificationTransform(64, is_training=True, **AUGMENTATIONS[name])
    results = []
    for seed in (1, 2, 3, 1, 2, 3):
        seed_all(seed)
        results.append(transform(picture))
    assert all(torch.equal(a, b) for a, b in zip(results[:3], results[3:], strict=True))
    assert not torch.equal(results[0], results[1])
    assert results[0].dtype == torch.uint8
    assert results[0].shape == (3, 64, 64)


@pytest.mark.parametrize("generator", ["random", "numpy", "torch"])
def test_no_other_source_of_randomness(picture, generator):
    """Leaving one generator out changes the result, so all three are needed, and none besides."""
    transform = ClassificationTransform(
        64, is_training=True, affine={"degrees": 20, "translate": (0.2, 0.2)}
    )
    parts = {"random": random.seed, "numpy": np.random.seed, "torch": torch.manual_seed}
    results = []
    for other in range(4):
        seed_all(0)
        parts[generator](other)
        results.append(transform(picture))
    assert any(not torch.equal(results[0], result) for result in results[1:])


def test_evaluation_squashes_to_256_and_crops_224(picture):
    got = ClassificationTransform(224)(picture)
    squashed = picture.resize((256, 256), Image.Resampling.BICUBIC)
    expected = np.asarray(squashed.crop((16, 16, 240, 240)))
    assert np.array_equal(got.permute(1, 2, 0).numpy(), expected)


def test_evaluation_by_the_shorter_side(picture):
    got = ClassificationTransform(224, resize="shortest")(picture)
    resized = picture.resize((384, 256), Image.Resampling.BICUBIC)
    expected = np.asarray(resized.crop((80, 16, 304, 240)))
    assert np.array_equal(got.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("size", [384, (96, 160)])
def test_without_test_crop_the_whole_picture_is_resized(picture, size):
    got = ClassificationTransform(size, test_crop=False)(picture)
    height, width = (size, size) if isinstance(size, int) else size
    expected = np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC))
    assert np.array_equal(got.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("size", [1, 32, 33, (20, 50), [50, 20]])
@pytest.mark.parametrize("training", [True, False])
def test_any_size(picture, size, training):
    height, width = (size, size) if isinstance(size, int) else size
    for resize in ("squash", "shortest"):
        got = ClassificationTransform(size, training, resize=resize)(picture)
        assert got.shape == (3, height, width)


def test_no_flip_means_never_mirrored():
    left_dark = Image.fromarray(np.repeat(np.arange(64, dtype=np.uint8) * 4, 64).reshape(64, 64).T)
    options = AUGMENTATIONS["digits"]
    transform = ClassificationTransform(32, is_training=True, **options)
    for seed in range(20):
        seed_all(seed)
        result = transform(left_dark.convert("RGB")).float()[0]
        assert result[:, 8:12].mean() < result[:, 20:24].mean()


def test_whole_picture_without_augmentation_is_a_plain_resize(picture):
    plain = ClassificationTransform(
        48, True, auto_augment=None, color_jitter=None, scale=None, hflip=0.0
    )
    expected = np.asarray(picture.resize((48, 48), Image.Resampling.BICUBIC))
    assert np.array_equal(plain(picture).permute(1, 2, 0).numpy(), expected)
    mirrored = ClassificationTransform(
        48, True, auto_augment=None, color_jitter=None, scale=None, hflip=1.0
    )
    assert torch.equal(mirrored(picture), plain(picture).flip(2))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"input_size": 0}, "input_size=0"),
        ({"input_size": (3, 224, 224)}, "input_size="),
        ({"input_size": 224.0}, "input_size="),
        ({"input_size": "224"}, "input_size="),
        ({"crop_pct": "all"}, "crop_pct="),
        ({"is_training": True, "mean": 0.5}, "mean="),
        ({"is_training": True, "affine": 5}, "affine=5"),
        ({"is_training": True, "scale": 0.5}, "scale=0.5"),
        ({"resize": "squish"}, "did you mean 'squash'"),
        ({"interpolation": "cubic"}, "did you mean 'bicubic'"),
        ({"interpolation": "random"}, "interpolation="),
        ({"crop_pct": 1.5}, "crop_pct=1.5"),
        ({"hflip": 2.0}, "hflip=2.0"),
        ({"is_training": True, "auto_augment": "rnd-m9"}, "auto_augment='rnd-m9'"),
        ({"is_training": True, "auto_augment": "rand-m9-x3"}, "auto_augment='rand-m9-x3'"),
        ({"is_training": True, "scale": (1.0, 0.5)}, "scale="),
        ({"is_training": True, "affine": {"degree": 5}}, "did you mean 'degrees'"),
        ({"is_training": True, "affine": {"degres": 5}}, "affine key='degres' is not known; did"),
        ({"is_training": True, "affine": {"translate": 3}}, "affine="),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(UserError) as caught:
        TRANSFORMS.build(dict(type="polaformer.ClassificationTransform", **options))
    assert words in str(caught.value)
