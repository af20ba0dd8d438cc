"""Losses over pixels: closed forms, torch's own values, ignored pixels, and steps in a head."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from segmentor_toy import CLASSES, aux, build, config, sample, truths
from torch import Tensor

from polaformer.errors import UserError
from polaformer.models import PixelCrossEntropy, PixelDice

WEIGHTS = [0.5, 2.0, 1.0, 0.0, 3.0]


def logits_and_labels(dtype=torch.float32) -> tuple[Tensor, Tensor]:
    """Logits [2, 5, 6, 7] and labels [2, 6, 7] with ignored pixels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, CLASSES, 6, 7, generator=generator, dtype=dtype)
    labels = torch.randint(0, CLASSES, (2, 6, 7), generator=generator)
    labels[:, :2, 3:] = 255
    return logits.requires_grad_(), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_cross_entropy_is_that_of_torch(weights, smoothing):
    logits, labels = logits_and_labels()
    own = PixelCrossEntropy(weights, smoothing)(logits, labels)
    other = logits.detach().clone().requires_grad_()
    wanted = F.cross_entropy(
        other,
        labels,
        weight=None if weights is None else torch.tensor(weights),
        ignore_index=255,
        label_smoothing=smoothing,
    )
    torch.testing.assert_close(own, wanted)
    own.backward()
    wanted.backward()
    torch.testing.assert_close(logits.grad, other.grad)
    assert not logits.grad[:, :, :2, 3:].any(), "an ignored pixel has a gradient"


@pytest.mark.parametrize(("avg", "divisor"), [("weights", 4.0), ("pixels", 3.0)])
def test_class_weights_by_hand(avg, divisor):
    """Two classes with equal logits: each pixel loses log 2; weights 1, 1 and 2."""
    labels = torch.tensor([[[0, 0, 1, 255]]])
    loss = PixelCrossEntropy([1.0, 2.0], avg=avg)(torch.zeros(1, 2, 1, 4), labels)
    assert loss.item() == pytest.approx(4 * math.log(2) / divisor)


def test_pixel_weights_and_reductions():
    """A sampler keeps three of the pixels; the mean is over these."""
    logits, labels = logits_and_labels()
    kept = torch.zeros(labels.shape)
    kept[0, 3, :3] = 1
    kept[0, 0, 6] = 1  # an ignored pixel stays ignored
    loss = PixelCrossEntropy(loss_weight=2.0)
    wanted = F.cross_entropy(logits, labels, ignore_index=255, reduction="none")
    mean = wanted[0, 3, :3].mean()
    torch.testing.assert_close(loss(logits, labels, weight=kept), 2 * mean)
    torch.testing.assert_close(
        loss(logits, labels, weight=kept, reduction_override="sum"), 6 * mean
    )
    torch.testing.assert_close(loss(logits, labels, kept, avg_factor=12), mean / 2)
    each = loss(logits, labels, reduction_override="none")
    torch.testing.assert_close(each, 2 * wanted)


def test_focal_loss():
    logits, labels = logits_and_labels()
    p = logits.softmax(dim=1)
    nll = F.cross_entropy(logits, labels, ignore_index=255, reduction="none")
    of_label = p.gather(1, labels.clamp(max=4)[:, None])[:, 0]
    valid = labels != 255
    wanted = ((1 - of_label) ** 2 * nll)[valid].mean()
    torch.testing.assert_close(PixelCrossEntropy(gamma=2)(logits, labels), wanted)


def dice_by_hand(p: Tensor, labels: Tensor, classes, power: int = 1) -> float:
    """1 - 2 sum(p t) / (sum(p^power) + sum(t)), class by class over valid pixels."""
    values = []
    for c in classes:
        both = predicted = truth = 0.0
        for place, label in zip(range(labels.numel()), labels.flatten().tolist(), strict=True):
            if label == 255:
                continue
            value = p.flatten(2).permute(1, 0, 2).reshape(p.shape[1], -1)[c, place].item()
            both += value * (label == c)
            predicted += value**power
            truth += label == c
        values.append(1 - 2 * both / (predicted + truth))
    return sum(values) / len(values)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("background", [True, False])
def test_dice_by_hand(power, background):
    logits, labels = logits_and_labels()
    labels[labels == 3] = 0  # class 3 is not in the batch
    present = [0, 1, 2, 4] if background else [1, 2, 4]
    loss = PixelDice(power=power, background=background)(logits, labels)
    wanted = dice_by_hand(logits.softmax(dim=1), labels, present, power)
    assert loss.item() == pytest.approx(wanted, rel=1e-5)


def test_dice_ends():
    labels = torch.tensor([[[0, 1, 1, 255]]])
    right = 50 * F.one_hot(labels.clamp(max=1), 2).permute(0, 3, 1, 2).float()
    assert PixelDice()(right, labels).item() == pytest.approx(0, abs=1e-6)
    assert PixelDice()(-right, labels).item() == pytest.approx(1, abs=1e-6)
    assert PixelDice(loss_weight=3.0)(-right, labels).item() == pytest.approx(3, abs=1e-5)


@pytest.mark.parametrize("loss", [PixelCrossEntropy(), PixelCrossEntropy(WEIGHTS), PixelDice()])
def test_what_stands_at_ignored_pixels_does_not_matter(loss):
    logits, labels = logits_and_labels()
    odd = logits.detach().clone()
    odd[:, :, :2, 3:] = torch.tensor([0.0, 1e30, -1e30, 1.0])
    odd[:, 0, :2, 3:] = -1e35
    odd.requires_grad_()
    torch.testing.assert_close(loss(odd, labels), loss(logits, labels))
    loss(odd, labels).backward()
    loss(logits, labels).backward()
    inside = labels != 255
    for one in (odd.grad, logits.grad):
        assert not one.movedim(1, -1)[~inside].any()
    torch.testing.assert_close(odd.grad.movedim(1, -1)[inside], logits.grad.movedim(1, -1)[inside])


@pytest.mark.parametrize("loss", [PixelCrossEntropy(), PixelCrossEntropy(WEIGHTS), PixelDice()])
@pytest.mark.parametrize("weight", [None, torch.zeros(2, 6, 7)])
def test_nothing_counts(loss, weight):
    """All pixels ignored, or a sampler that keeps none: 0, and gradients of 0."""
    logits, labels = logits_and_labels()
    value = loss(logits, torch.full_like(labels, 255) if weight is None else labels, weight)
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


def test_only_a_class_of_weight_0():
    logits, labels = logits_and_labels()
    value = PixelCrossEntropy(WEIGHTS)(logits, torch.full_like(labels, 3))
    assert value.item() == 0


def test_dice_without_background_in_a_batch_of_background():
    logits, labels = logits_and_labels()
    value = PixelDice(background=False)(logits, torch.zeros_like(labels))
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


def test_dice_of_the_pixels_that_a_sampler_kept():
    logits, labels = logits_and_labels()
    kept = (torch.rand(labels.shape, generator=torch.Generator().manual_seed(3)) < 0.5).float()
    wanted = PixelDice()(logits, torch.where(kept > 0, labels, 255))
    torch.testing.assert_close(PixelDice()(logits, labels, weight=kept), wanted)


def test_one_channel_means_two_classes():
    logits, labels = logits_and_labels()
    z, two = logits[:, :1], torch.where(labels == 255, 255, labels % 2)
    valid = two != 255
    wanted = F.binary_cross_entropy_with_logits(z[:, 0][valid], two[valid].float())
    torch.testing.assert_close(PixelCrossEntropy()(z, two), wanted)
    both = torch.cat([torch.zeros_like(z), z], dim=1)
    torch.testing.assert_close(PixelDice()(z, two), PixelDice()(both, two))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [PixelCrossEntropy(WEIGHTS), PixelDice(power=2)])
def test_half_types_are_computed_in_fp32(dtype, loss):
    """512 x 512 pixels: their number is beyond what fp16 can hold."""
    logits = torch.randn(1, CLASSES, 512, 512, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, CLASSES, (1, 512, 512), generator=torch.Generator().manual_seed(1))
    half = logits.to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        value = loss(half, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(half.float(), labels))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PixelCrossEntropy([1.0, -1.0]), "allowed: numbers >= 0"),
        (lambda: PixelCrossEntropy([0.0, 0.0]), "not all 0"),
        (lambda: PixelCrossEntropy([1.0, float("nan")]), "allowed: numbers >= 0"),
        (lambda: PixelCrossEntropy("weights.npy"), "allowed: a list of numbers"),
        (lambda: PixelCrossEntropy([1.0, "2"]), "allowed: a list of numbers"),
        (lambda: PixelCrossEntropy(avg="pixel"), "did you mean 'pixels'"),
        (lambda: PixelCrossEntropy(label_smoothing=1.5), "label_smoothing=1.5; allowed"),
        (lambda: PixelCrossEntropy(gamma=0.5), "gamma=0.5; allowed: a number >= 1"),
        (lambda: PixelCrossEntropy(background_weight=-1), "background_weight=-1; allowed"),
        (lambda: PixelCrossEntropy([1.0, 2.0], background_weight=0.5), "only one of the two"),
        (lambda: PixelDice(power=3), "power=3; allowed: 1, 2"),
        (lambda: PixelDice(loss_weight=-1), "loss_weight=-1; allowed: a number >= 0"),
    ],
)
def test_wrong_arguments(make, text):
    with pytest.raises(UserError, match=text):
        make()


def test_wrong_number_of_class_weights():
    logits, labels = logits_and_labels()
    with pytest.raises(UserError, match="has 3 weights, but the head has 5 classes"):
        PixelCrossEntropy([1.0, 1.0, 1.0])(logits, labels)


def test_the_weight_of_the_background_alone():
    logits, labels = logits_and_labels()
    assert (labels == 0).any()
    found = PixelCrossEntropy(background_weight=0.1)(logits, labels)
    weights = torch.tensor([0.1] + [1.0] * (CLASSES - 1))
    expected = F.cross_entropy(logits, labels, weight=weights, ignore_index=255)
    torch.testing.assert_close(found, expected)
    assert abs(found - PixelCrossEntropy()(logits, labels)) > 1e-3


def test_weights_are_not_part_of_a_checkpoint():
    assert PixelCrossEntropy(WEIGHTS).state_dict() == {}


def step(ignored: int | None = 255, auxiliary: dict | None = None, **head) -> dict[str, Tensor]:
    """Losses of one step of a segmentor whose parameters all got a finite gradient."""
    model = build(config(decode_head=head, auxiliary_head=auxiliary)).train()
    gt = truths(2, 64, 64)
    if ignored is None:
        gt = [t.clamp(max=CLASSES - 1) for t in gt]
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    losses = model(images, [sample(t) for t in gt], mode="loss")
    total, _ = model.parse_losses(losses)
    assert total.isfinite()
    total.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
    return losses


CE, DICE = dict(type="polaformer.PixelCrossEntropy"), dict(type="polaformer.PixelDice")


@pytest.mark.parametrize("thresh", [None, 0.7])
@pytest.mark.parametrize("loss_decode", [CE, [CE, DICE], [DICE, CE]])
def test_hard_pixels(mmseg, thresh, loss_decode):
    sampler = dict(type="OHEMPixelSampler", thresh=thresh, min_kept=100)
    losses = step(sampler=sampler, loss_decode=loss_decode)
    plain = step(loss_decode=loss_decode)
    assert losses["decode.loss_ce"] > plain["decode.loss_ce"]


@pytest.mark.parametrize(
    "loss",
    [
        dict(type="CrossEntropyLoss", avg_non_ignore=True, loss_name="loss_other"),
        dict(type="DiceLoss", use_sigmoid=False),
        dict(type="LovaszLoss", reduction="none"),
        dict(type="LovaszLoss", per_image=True),
        dict(type="TverskyLoss"),
    ],
    ids=lambda loss: loss["type"],
)
def test_losses_of_mmseg(mmseg, loss):
    """Beside our cross entropy, with ignored pixels in the batch."""
    losses = step(loss_decode=[CE, loss])
    assert len(losses) == 3


def test_boundaries(mmseg):
    """STDCHead learns, as an auxiliary head, where the labels change."""
    head = aux(
        type="STDCHead",
        num_classes=2,
        boundary_threshold=0.1,
        loss_decode=[CE, dict(type="polaformer.PixelDice")],
    )
    losses = step(auxiliary=head)
    assert {"aux.loss_ce", "aux.loss_dice", "decode.loss_ce"} <= set(losses)


def test_class_weights_of_mmseg_still_fail_at_ignored_pixels(mmseg):
    """Why PixelCrossEntropy exists; when this fails, its docstring is out of date."""
    logits, labels = logits_and_labels()
    theirs = MODELS.build(dict(type="CrossEntropyLoss", class_weight=WEIGHTS))
    with pytest.raises(IndexError):
        theirs(logits, labels, ignore_index=255)


def test_dice_of_mmseg_still_counts_ignored_pixels(mmseg):
    """Why PixelDice exists."""
    logits, labels = logits_and_labels()
    theirs = MODELS.build(dict(type="DiceLoss", use_sigmoid=False))
    theirs(logits, labels, ignore_index=255).backward()
    assert logits.grad[:, :, :2, 3:].any()
    with pytest.raises(AssertionError):
        theirs(logits, labels, weight=torch.ones(labels.shape), ignore_index=255)
