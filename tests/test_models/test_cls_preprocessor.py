from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from polaformer.errors import UserError
from polaformer.models import ClsPreprocessor

MIXUP = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "switch_prob": 0.5, "prob": 1.0, "mode": "batch"}


def seed(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def batch(size: int, height: int = 8, width: int = 12) -> dict:
    generator = torch.Generator().manual_seed(size)
    inputs = torch.randint(0, 256, (size, 3, height, width), dtype=torch.uint8, generator=generator)
    return {"inputs": inputs, "labels": torch.arange(size) % 5, "indices": torch.arange(size)}


def test_normalises_uint8_per_rgb_channel():
    pre = ClsPreprocessor(mean=(10.0, 20.0, 30.0), std=(1.0, 2.0, 4.0))
    inputs = torch.tensor([10, 24, 38], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 4, 5)
    out = pre({"inputs": inputs, "labels": torch.tensor([1, 2])})
    assert out["inputs"].dtype == torch.float32
    assert torch.equal(out["inputs"][1, :, 3, 4], torch.tensor([0.0, 2.0, 2.0]))
    assert torch.equal(out["labels"], torch.tensor([1, 2]))


def test_neither_the_batch_nor_validation_is_touched_by_augmentation():
    pre = ClsPreprocessor(mixup=MIXUP, random_erasing={"prob": 1.0}, num_classes=5)
    data = batch(4)
    before = data["inputs"].clone()
    plain = ClsPreprocessor()(data)
    seed(0)
    state = torch.get_rng_state()
    out = pre(data, training=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(out["inputs"], plain["inputs"])
    assert torch.equal(out["labels"], data["labels"])
    pre(data, training=True)
    assert torch.equal(data["inputs"], before)
    assert torch.equal(data["labels"], torch.arange(4))


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_odd_batches_keep_the_last_image_unmixed(mode, size):
    mixup = {"mixup_alpha": 8.0, "mode": mode}
    pre = ClsPreprocessor(mixup=mixup, num_classes=5, label_smoothing=0.1)
    data = batch(size)
    plain = ClsPreprocessor()(data)["inputs"]
    seed(1)
    out = pre(data, training=True)
    assert out["labels"].shape == (size, 5)
    assert torch.allclose(out["labels"].sum(1), torch.ones(size))
    if size % 2:
        expected = torch.full((5,), 0.02)
        expected[(size - 1) % 5] += 0.9
        assert torch.allclose(out["labels"][-1], expected)
        assert torch.equal(out["inputs"][-1], plain[-1])
    if size > 1:
        assert not torch.equal(out["inputs"][:2], plain[:2])


def test_mixup_mixes_images_and_labels_with_one_weight():
    mixup = {"mixup_alpha": 1.0, "cutmix_alpha": 0.0}
    pre = ClsPreprocessor(mixup=mixup, num_classes=2, label_smoothing=0.0)
    inputs = torch.stack([torch.zeros(3, 4, 4), torch.full((3, 4, 4), 200.0)])
    seed(3)
    out = pre({"inputs": inputs, "labels": torch.tensor([0, 1])}, training=True)
    share = out["labels"][0, 1].item()
    assert 0 < share < 1
    mixed = out["inputs"] * pre.std + pre.mean
    assert torch.allclose(mixed[0], torch.full((3, 4, 4), 200 * share), atol=1e-3)


def test_cutmix_label_weight_is_the_pasted_area():
    pre = ClsPreprocessor(mixup={"mixup_alpha": 0.0, "cutmix_alpha": 1.0}, num_classes=2)
    inputs = torch.stack([torch.zeros(3, 16, 20), torch.full((3, 16, 20), 200.0)])
    seed(5)
    out = pre({"inputs": inputs, "labels": torch.tensor([0, 1])}, training=True)
    pasted = (out["inputs"] * pre.std + pre.mean)[0, 0] > 100
    assert 0 < pasted.float().mean() < 1
    assert out["labels"][0, 1].item() == pytest.approx(pasted.float().mean().item(), abs=1e-6)


def test_random_erasing_replaces_a_rectangle_in_training_only():
    pre = ClsPreprocessor(random_erasing={"prob": 1.0, "mode": "pixel", "count": 1})
    data = batch(6, 32, 40)
    plain = ClsPreprocessor()(data)["inputs"]
    seed(2)
    erased = pre(data, training=True)["inputs"]
    changed = (erased != plain).any(dim=1)
    assert changed.flatten(1).any(dim=1).all()
    assert changed.float().mean() < 0.5
    for mask in changed:
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        box = mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert box.all()


def test_same_seed_same_batch_other_seed_other_batch():
    pre = ClsPreprocessor(mixup=MIXUP, random_erasing={"prob": 0.5}, num_classes=5)
    results = []
    for value in (7, 7, 8):
        seed(value)
        results.append(pre(batch(6), training=True))
    assert torch.equal(results[0]["inputs"], results[1]["inputs"])
    assert torch.equal(results[0]["labels"], results[1]["labels"])
    assert not torch.equal(results[0]["inputs"], results[2]["inputs"])


def test_lists_of_one_size_are_stacked_and_of_several_sizes_refused():
    pre = ClsPreprocessor()
    images = list(batch(3)["inputs"])
    out = pre({"inputs": images, "labels": [torch.tensor(1)] * 3})
    assert out["inputs"].shape == (3, 3, 8, 12)
    assert torch.equal(out["labels"], torch.tensor([1, 1, 1]))
    with pytest.raises(UserError, match=r"several sizes.*resize or crop"):
        pre({"inputs": [*images, torch.zeros(3, 9, 12, dtype=torch.uint8)]})


def test_channel_count_must_fit_the_mean():
    with pytest.raises(UserError, match="images have 1 channels"):
        ClsPreprocessor()({"inputs": torch.zeros(2, 1, 4, 4, dtype=torch.uint8)})


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"mixup": {"mixup_alhpa": 0.8}, "num_classes": 5}, "did you mean 'mixup_alpha'"),
        ({"mixup": {"mixup_alpha": 0.8}}, "num_classes"),
        ({"mixup": {"mixup_alpha": 0, "cutmix_alpha": 0}, "num_classes": 5}, "mixes nothing"),
        ({"mixup": {"mode": "pairs"}, "num_classes": 5}, "allowed: batch, pair, elem"),
        ({"random_erasing": {"probability": 0.2}}, "allowed: prob, mode, count"),
        ({"random_erasing": {"mode": "pixels"}}, "allowed: const, rand, pixel"),
        ({"mean": (0.0,)}, "mean has 1 and std 3"),
        ({"std": (1.0, 0.0, 1.0)}, "std above 0"),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        ClsPreprocessor(**arguments)


def test_constants_are_not_part_of_the_state():
    assert list(ClsPreprocessor().state_dict()) == []
