"""Views of a picture become one: the mean of their probabilities at the original size."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.dataset import pseudo_collate
from mmengine.registry import MODELS, TRANSFORMS
from segmentor_toy import CLASSES, build, config, sample
from torch import Tensor, nn

from polaformer.errors import UserError
from polaformer.models import SegmentationTTA, Segmentor
from polaformer.models import segmentation_inference as inference
from polaformer.models.segmentation_inference import View, WholeLogits, label_image
from polaformer.models.segmentation_tta import mean_strips

SIZE = (45, 61)
SLIDE = dict(mode="slide", crop_size=(32, 32), stride=(21, 21))
PREPROCESSOR = dict(
    type="SegDataPreProcessor",
    mean=[96.0] * 3,
    std=[45.0] * 3,
    size_divisor=32,
    test_cfg=dict(size_divisor=32),
)


def truth_of_picture() -> Tensor:
    generator = torch.Generator().manual_seed(4)
    truth = torch.randint(0, CLASSES, SIZE, generator=generator)
    truth[:5] = 255
    return truth


class LoadTruth:
    """Stands for LoadMask: the truth at its own size and upright, whatever the view."""

    def __call__(self, item: dict) -> dict:
        return {**item, "gt_seg_map": truth_of_picture().numpy().astype(np.uint8)}


def views_of(picture: np.ndarray, scales=(0.75, 1.0, 1.5), truth_first: bool = False) -> dict:
    """A collated batch of one picture in several sizes, each with its mirror image."""
    import mmseg.datasets.transforms  # noqa: F401

    resize = [dict(type="Resize", scale_factor=s, keep_ratio=True) for s in scales]
    flips = [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)]
    steps = [resize, flips, [dict(type=LoadTruth)], [dict(type="PackSegInputs")]]
    if truth_first:
        steps = [resize, [dict(type=LoadTruth)], flips, [dict(type="PackSegInputs")]]
    pipeline = TRANSFORMS.build(dict(type="TestTimeAug", transforms=steps))
    item = {
        "img": picture,
        "img_shape": picture.shape[:2],
        "ori_shape": picture.shape[:2],
        "img_path": "x.png",
        "seg_fields": ["gt_seg_map"] if truth_first else [],
    }
    return pseudo_collate([pipeline(item)])


def picture_of_noise() -> np.ndarray:
    """Large grains, so that resizing keeps something of them."""
    grains = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return grains.repeat(8, axis=0).repeat(8, axis=1)[: SIZE[0], : SIZE[1]].copy()


def by_hand(model: Segmentor, batch: dict) -> Tensor:
    """Mean probabilities [C, H, W]: whole maps of every view, one after the other."""
    total = torch.zeros(CLASSES, *SIZE)
    for inputs, samples in zip(batch["inputs"], batch["data_samples"], strict=True):
        ready = model.data_preprocessor(dict(inputs=inputs, data_samples=samples), False)
        image, meta = ready["inputs"], samples[0].metainfo
        logits = F.interpolate(model(image), image.shape[2:], mode="bilinear")
        height, width = meta["img_shape"][:2]
        logits = logits[..., :height, :width]
        if meta["flip"]:
            logits = logits.flip(-1)
        total += F.interpolate(logits, SIZE, mode="bilinear")[0].softmax(dim=0)
    return total / len(batch["inputs"])


def make(changes: dict) -> Segmentor:
    """A segmentor that finds several classes in the picture of noise."""
    picture = torch.from_numpy(picture_of_noise()).permute(2, 0, 1)[None]
    return build(config(**changes), like=(picture - 96) / 45)


def wrapped(model: nn.Module) -> SegmentationTTA:
    return MODELS.build(dict(type="polaformer.SegmentationTTA", module=model))


def test_the_mean_over_sizes_and_mirror_images(mmseg, monkeypatch):
    monkeypatch.setattr(inference, "STRIP_NUMBERS", 4000)
    model = make(dict(data_preprocessor=PREPROCESSOR))
    batch = views_of(picture_of_noise())
    assert len(batch["inputs"]) == 6
    with torch.no_grad():
        wanted = by_hand(model, views_of(picture_of_noise()))
    (found,) = wrapped(model).test_step(batch)
    best = wanted.topk(2, dim=0).values
    clear = (best[0] - best[1]) > 1e-5
    assert clear.float().mean() > 0.99
    label = found.pred_sem_seg.data[0]
    assert torch.equal(label[clear].long(), wanted.argmax(dim=0)[clear])
    assert len(label.unique()) > 1
    valid = truth_of_picture() != 255
    nll = -wanted.gather(0, truth_of_picture().clamp(max=4)[None])[0].log()
    assert found.pixel_loss == (
        pytest.approx(nll[valid].double().sum().item(), rel=1e-5),
        int(valid.sum()),
    )
    assert not found.flip
    assert found.img_path == "x.png"
    assert type(found).__name__ == "SegDataSample"


def test_one_upright_view_is_the_plain_prediction(mmseg):
    for test_cfg in (dict(mode="whole"), SLIDE):
        model = make(dict(data_preprocessor=PREPROCESSOR, test_cfg=test_cfg))
        image = torch.from_numpy(picture_of_noise()).permute(2, 0, 1)
        made = [sample(truth_of_picture(), ori_shape=SIZE, img_shape=SIZE) for _ in range(2)]
        (plain,) = model.test_step(dict(inputs=[image], data_samples=[made[0]]))
        (merged,) = wrapped(model).test_step(dict(inputs=[[image]], data_samples=[[made[1]]]))
        assert torch.equal(plain.pred_sem_seg.data, merged.pred_sem_seg.data)
        assert merged.pixel_loss == (pytest.approx(plain.pixel_loss[0]), plain.pixel_loss[1])


def test_sliding_windows_of_several_views(mmseg, monkeypatch):
    """Strips of all views together give what one strip of everything gives."""
    model = make(dict(data_preprocessor=PREPROCESSOR, test_cfg=SLIDE))
    runs = []
    model.decode_head.register_forward_hook(lambda *_: runs.append(1))
    (whole,) = wrapped(model).test_step(views_of(picture_of_noise(), (1.0, 1.25)))
    once = len(runs)
    monkeypatch.setattr(inference, "STRIP_NUMBERS", 3000)
    (strips,) = wrapped(model).test_step(views_of(picture_of_noise(), (1.0, 1.25)))
    assert len(runs) == 2 * once, "a window was computed twice"
    same = whole.pred_sem_seg.data == strips.pred_sem_seg.data
    assert same.float().mean() > 0.999
    assert strips.pixel_loss == (pytest.approx(whole.pixel_loss[0]), whole.pixel_loss[1])


@pytest.mark.parametrize("flip", ["horizontal", "vertical", "diagonal"])
def test_flips_are_undone_exactly(flip):
    """A view and its mirror image are the same numbers, so the mean is the view itself."""
    logits = torch.randn(CLASSES, 12, 20, generator=torch.Generator().manual_seed(0))
    turned = logits.flip(inference.FLIPS[flip])
    sources = [WholeLogits(one, (12, 20), False) for one in (logits, turned)]
    views = [View((12, 20)), View((12, 20), flip=flip)]
    labels, _ = label_image(mean_strips(sources, views), (12, 20), CLASSES)
    assert torch.equal(labels[0].long(), logits.argmax(dim=0))
    ((_, _, mean),) = mean_strips(sources, views)
    torch.testing.assert_close(mean, logits.log_softmax(dim=0))


def test_the_mean_is_one_of_probabilities():
    """Probabilities .6 and .1 of class 0 make .35; the mean of the logits would choose it."""
    sure, doubt = torch.tensor([0.999, 0.001]), torch.tensor([0.3, 0.7])
    p = [sure, doubt, doubt]
    sources = [WholeLogits(one.log()[:, None, None], (1, 1), False) for one in p]
    ((_, _, mean),) = mean_strips(sources, [View((1, 1))] * 3)
    torch.testing.assert_close(mean.exp().flatten(), torch.stack(p).mean(dim=0))


def test_a_hopeless_pixel_has_a_finite_loss():
    source = WholeLogits(torch.tensor([200.0, -200.0])[:, None, None], (1, 1), False)
    strips = mean_strips([source], [View((1, 1))])
    _, loss = label_image(strips, (1, 1), 2, truth=torch.ones(1, 1))
    assert loss is not None
    assert 80 < loss[0] < 100


def test_one_output_channel():
    """Sigmoids .1 and .8 make .45; the mean of their logits would make .4."""
    sources = [
        WholeLogits(torch.tensor(p).logit().reshape(1, 1, 1), (1, 1), False) for p in (0.1, 0.8)
    ]
    for threshold, label in ((0.42, 1), (0.48, 0)):
        for truth, p in ((1, 0.45), (0, 0.55)):
            strips = mean_strips(sources, [View((1, 1))] * 2)
            labels, loss = label_image(strips, (1, 1), 1, threshold, torch.tensor([[truth]]))
            assert labels.item() == label
            assert loss == (pytest.approx(-math.log(p), rel=1e-5), 1)


def test_the_truth_of_a_flipped_view_is_not_used(mmseg):
    """RandomFlip turns a truth that is loaded before it; the upright view has the right one."""
    model = make(dict(data_preprocessor=PREPROCESSOR))
    after = wrapped(model).test_step(views_of(picture_of_noise(), (1.0,)))[0]
    batch = views_of(picture_of_noise(), (1.0,), truth_first=True)
    batch = {key: value[::-1] for key, value in batch.items()}  # the flipped view first
    assert batch["data_samples"][0][0].flip
    before = wrapped(model).test_step(batch)[0]
    assert torch.equal(before.gt_sem_seg.data[0], truth_of_picture())
    assert before.pixel_loss == after.pixel_loss
    assert torch.equal(before.pred_sem_seg.data, after.pred_sem_seg.data)


def test_no_upright_view(mmseg):
    model = make(dict(data_preprocessor=PREPROCESSOR))
    batch = views_of(picture_of_noise(), (1.0,))
    upright = wrapped(model).test_step(views_of(picture_of_noise(), (1.0,)))[0]
    flipped = {key: value[1:] for key, value in batch.items()}
    with pytest.raises(UserError, match="every view of tta_pipeline is flipped"):
        wrapped(model).test_step(flipped)
    del flipped["data_samples"][0][0].gt_sem_seg
    (found,) = wrapped(model).test_step(flipped)
    assert not found.flip
    assert found.pred_sem_seg.shape == upright.pred_sem_seg.shape


def test_several_pictures_at_once(mmseg):
    model = make(dict(data_preprocessor=PREPROCESSOR))
    pictures = [picture_of_noise(), 255 - picture_of_noise()]
    singles = [wrapped(model).test_step(views_of(one))[0] for one in pictures]
    parts = [views_of(one) for one in pictures]
    batch = {
        key: [[*a, *b] for a, b in zip(parts[0][key], parts[1][key], strict=True)]
        for key in parts[0]
    }
    both = wrapped(model).test_step(batch)
    for one, other in zip(singles, both, strict=True):
        same = one.pred_sem_seg.data == other.pred_sem_seg.data
        assert same.float().mean() > 0.999
    assert (both[0].pred_sem_seg.data != both[1].pred_sem_seg.data).float().mean() > 0.05


def test_views_of_different_pictures(mmseg):
    model = make({})
    batch = {
        "inputs": [[torch.zeros(3, 32, 32)]] * 2,
        "data_samples": [[sample(ori_shape=(32, 32))], [sample(ori_shape=(40, 32))]],
    }
    preprocessed = MODELS.build(dict(type="SegDataPreProcessor"))
    model.data_preprocessor = preprocessed
    with pytest.raises(UserError, match="several original sizes"):
        wrapped(model).test_step(batch)


def test_only_our_segmentor():
    class Other(nn.Module):
        def test_step(self, data):
            return data

    with pytest.raises(UserError, match=r"polaformer.Segmentor, but the model is a Other"):
        SegmentationTTA(Other())
