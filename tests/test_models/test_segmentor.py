"""The segmentor beside mmseg's EncoderDecoder with the same weights, and its own promises."""

from __future__ import annotations

import copy

import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.registry import MODELS
from segmentor_toy import CLASSES, aux, build, config, peak_bytes, sample, truths
from torch import Tensor

from polaformer.errors import UserError
from polaformer.models import segmentation_inference as inference
from polaformer.models.segmentation_settings import InferenceSettings, settings_of


def twin(cfg: dict, model):
    """mmseg's EncoderDecoder of the same config and weights."""
    other = MODELS.build(ConfigDict({**copy.deepcopy(cfg), "type": "EncoderDecoder"}))
    assert other.load_state_dict(model.state_dict(), strict=True)
    return other.eval()


def images(count: int, height: int, width: int) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(2))


def agree(found, wanted) -> None:
    """Equal labels wherever the two best logits are more than rounding apart."""
    logits = wanted.seg_logits.data
    label = found.pred_sem_seg.data
    assert label.dtype == torch.uint8
    assert label.shape == (1, *logits.shape[1:])
    best = logits.topk(2, dim=0).values
    clear = (best[0] - best[1]) > 1e-4
    assert clear.float().mean() > 0.99
    assert torch.equal(label[0][clear].long(), wanted.pred_sem_seg.data[0][clear])
    assert len(label.unique()) > 1, "a picture of one label shows nothing"


SLIDE = dict(mode="slide", crop_size=(64, 64), stride=(43, 43))
CASES = {
    "whole": (dict(mode="whole"), (64, 96), {}),
    "smaller": (dict(mode="whole"), (64, 96), dict(ori_shape=(31, 50))),
    "odd": (dict(mode="whole"), (67, 93), dict(ori_shape=(201, 130))),
    "flip": (dict(mode="whole"), (64, 96), dict(flip=True, flip_direction="horizontal")),
    "vertical": (SLIDE, (70, 96), dict(flip=True, flip_direction="vertical")),
    "padded": (dict(mode="whole"), (64, 96), dict(padding_size=[0, 9, 0, 14], ori_shape=(99, 70))),
    "slide": (SLIDE, (100, 150), {}),
    "slide to another size": (SLIDE, (100, 130), dict(ori_shape=(77, 201))),
    "smaller than a window": (SLIDE, (40, 100), dict(ori_shape=(35, 90))),
    "one small window": (SLIDE, (33, 47), {}),
}


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_labels_of_encoder_decoder(mmseg, monkeypatch, case, align):
    monkeypatch.setattr(inference, "STRIP_NUMBERS", 20_000)
    test_cfg, size, meta = CASES[case]
    cfg = config(test_cfg=test_cfg, decode_head=dict(align_corners=align))
    model = build(cfg)
    meta = {"ori_shape": size, "img_shape": size, "pad_shape": size, **meta}
    batch = images(2, *size)
    with torch.no_grad():
        found = model(batch, [sample(**meta), sample(**meta)], mode="predict")
        wanted = twin(cfg, model)(batch, [sample(**meta), sample(**meta)], mode="predict")
    for one, other in zip(found, wanted, strict=True):
        agree(one, other)
        assert "seg_logits" not in one


def test_one_output_channel(mmseg):
    head = dict(num_classes=2, out_channels=1, threshold=0.4, loss_decode=BINARY)
    cfg = config(decode_head=head)
    model = build(cfg)
    batch, meta = images(1, 64, 64), dict(ori_shape=(50, 64), img_shape=(64, 64))
    (truth,) = truths(1, 50, 64, classes=2)
    (found,) = model(batch, [sample(truth, **meta)], mode="predict")
    with torch.no_grad():
        (wanted,) = twin(cfg, model)(batch, [sample(**meta)], mode="predict")
    assert found.pred_sem_seg.data.dtype == torch.uint8
    p = wanted.seg_logits.data
    valid = truth != 255
    each = torch.where(truth == 1, p[0].double(), 1 - p[0].double()).log().neg()[valid]
    assert found.pixel_loss == (pytest.approx(each.sum().item(), rel=1e-4), int(valid.sum()))
    clear = (p - 0.4).abs() > 1e-5
    assert torch.equal(
        found.pred_sem_seg.data[clear].long(), wanted.pred_sem_seg.data[clear].long()
    )
    assert found.pred_sem_seg.data.unique().tolist() == [0, 1]


BINARY = dict(type="CrossEntropyLoss", use_sigmoid=True)


def test_names_and_values_of_losses(mmseg):
    """As EncoderDecoder, with one auxiliary head and with two."""
    for heads, names in ((aux(), ["aux"]), ([aux(), aux(in_index=2)], ["aux_0", "aux_1"])):
        cfg = config(auxiliary_head=heads)
        model = build(cfg)
        batch, gt = images(2, 64, 64), truths(2, 64, 64)
        found = model(batch, [sample(t) for t in gt], mode="loss")
        wanted = twin(cfg, model)(batch, [sample(t) for t in gt], mode="loss")
        prefixes = ["decode", *names]
        assert list(found) == [f"{p}.{k}" for p in prefixes for k in ("loss_ce", "acc_seg")]
        for key, value in wanted.items():
            torch.testing.assert_close(found[key], value)


def test_a_step_of_training_moves_every_part(mmseg):
    model = build(config(auxiliary_head=aux())).train()
    losses = model(images(2, 64, 64), [sample(t) for t in truths(2, 64, 64)], mode="loss")
    total, log = model.parse_losses(losses)
    total.backward()
    assert {"loss", "decode.loss_ce", "aux.loss_ce", "decode.acc_seg"} <= set(log)
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []


def test_tensor_mode_gives_the_logits_of_the_head(mmseg):
    logits = build(config())(images(1, 64, 96))
    assert logits.shape == (1, CLASSES, 16, 24)


def test_validation_loss(mmseg, monkeypatch):
    """Cross entropy of mmseg's logits at the original size; 255 has no part in it."""
    monkeypatch.setattr(inference, "STRIP_NUMBERS", 5_000)
    cfg = config()
    model = build(cfg)
    meta = dict(ori_shape=(50, 61), img_shape=(64, 96))
    (truth,) = truths(1, 50, 61)
    batch = images(1, 64, 96)
    (found,) = model(batch, [sample(truth, **meta)], mode="predict")
    with torch.no_grad():
        (wanted,) = twin(cfg, model)(batch, [sample(truth, **meta)], mode="predict")
    losses = torch.nn.functional.cross_entropy(
        wanted.seg_logits.data[None].double(), truth[None], ignore_index=255, reduction="sum"
    )
    total, count = found.pixel_loss
    assert count == int((truth != 255).sum())
    assert total == pytest.approx(losses.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("test_cfg", "meta", "size"),
    [
        (dict(pixel_loss=False), {}, (64, 64)),
        ({}, {}, (60, 64)),
        ({}, dict(flip=True, flip_direction="horizontal"), (64, 64)),
    ],
)
def test_no_validation_loss(mmseg, test_cfg, meta, size):
    """Switched off, without a truth of the size of the picture, or where that may be flipped."""
    model = build(config(test_cfg=test_cfg))
    made = sample(torch.zeros(size), ori_shape=(64, 64), **meta)
    (found,) = model(images(1, 64, 64), [made], mode="predict")
    assert "pixel_loss" not in found.metainfo
    assert found.pred_sem_seg.shape == (64, 64)


def test_without_samples(mmseg):
    found = build(config())(images(2, 40, 56), mode="predict")
    assert [one.pred_sem_seg.shape for one in found] == [(40, 56)] * 2


def test_the_data_preprocessor_of_mmseg_pads(mmseg):
    """test_step from 8-bit pictures, padded to a multiple of 32, which is cut again."""
    preprocessor = dict(
        type="SegDataPreProcessor",
        mean=[96.0] * 3,
        std=[45.0] * 3,
        size_divisor=32,
        test_cfg=dict(size_divisor=32),
    )
    cfg = config(data_preprocessor=preprocessor)
    model = build(cfg)
    picture = (images(1, 50, 70)[0] * 40 + 96).clamp(0, 255).byte()
    meta = dict(ori_shape=(50, 70), img_shape=(50, 70))
    (found,) = model.test_step(dict(inputs=[picture], data_samples=[sample(**meta)]))
    other = twin(cfg, model)
    with torch.no_grad():
        (wanted,) = other.test_step(dict(inputs=[picture], data_samples=[sample(**meta)]))
    agree(found, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(mmseg, dtype):
    model = build(config(auxiliary_head=aux()))
    made = sample(truths(1, 64, 64)[0], ori_shape=(64, 64))
    with torch.autocast("cpu", dtype=dtype):
        losses = model(images(1, 64, 64), [made], mode="loss")
        (found,) = model(images(1, 64, 64), [made], mode="predict")
    assert losses["decode.loss_ce"].dtype == torch.float32
    assert losses["decode.loss_ce"].isfinite()
    half = found.pixel_loss
    (full,) = model(images(1, 64, 64), [made], mode="predict")
    assert half[0] == pytest.approx(full.pixel_loss[0], rel=0.05)


@pytest.mark.parametrize("test_cfg", [dict(mode="whole"), SLIDE])
def test_the_model_itself_predicts_in_the_half_type(mmseg, test_cfg):
    model = build(config(test_cfg=test_cfg))
    seen = []
    model.decode_head.register_forward_hook(lambda head, args, out: seen.append(out.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(images(1, 64, 80), mode="predict")
    assert set(seen) == {torch.bfloat16}


def test_a_head_that_predicts_in_its_own_way_is_asked(mmseg):
    model = build(config())
    head = type(model.decode_head)

    class Doubting(head):
        """Moves every decision by its own prediction."""

        def predict(self, inputs, batch_img_metas, test_cfg):
            logits = super().predict(inputs, batch_img_metas, test_cfg)
            assert logits.shape[2:] == batch_img_metas[0]["img_shape"]
            return logits.roll(1, dims=1)

    (plain,) = model(images(1, 64, 64), mode="predict")
    model.decode_head.__class__ = Doubting
    (found,) = model(images(1, 64, 64), mode="predict")
    moved = (plain.pred_sem_seg.data + 1) % CLASSES
    assert (found.pred_sem_seg.data == moved).float().mean() > 0.999


def test_memory_of_large_images(mmseg, monkeypatch):
    """80 classes: windows cost what one row of them costs, whole images a sum for each pixel."""
    monkeypatch.setattr(inference, "STRIP_NUMBERS", 2**16)

    def peak(height: int, **test_cfg) -> int:
        model = build(config(80, test_cfg=test_cfg))
        image = images(1, height, 64)
        return peak_bytes(lambda: model(image, mode="predict"))

    pixels = 128 * 64
    slide = dict(mode="slide", crop_size=(64, 64), stride=(64, 64))
    labels = 3 * pixels
    assert peak(512, **slide) - peak(128, **slide) <= 1.1 * labels
    whole = peak(128, mode="whole"), peak(512, mode="whole")
    assert whole[1] < 4.1 * whole[0], "growth beyond linear"
    assert whole[1] < 4 * pixels * 80 * 4, "as much as the logits of all classes at full size"


def test_training_without_truth(mmseg):
    with pytest.raises(UserError, match=r"no 'gt_sem_seg'.*LoadMask"):
        build(config())(images(1, 64, 64), [sample()], mode="loss")


def test_an_unknown_mode(mmseg):
    with pytest.raises(ValueError, match="did you mean 'predict'"):
        build(config())(images(1, 32, 32), mode="predct")


def test_an_odd_flip(mmseg):
    made = sample(flip=True, flip_direction="sideways")
    with pytest.raises(UserError, match="flip_direction='sideways'"):
        build(config())(images(1, 32, 32), [made], mode="predict")


def test_settings():
    assert settings_of({}) == InferenceSettings("whole")
    wanted = InferenceSettings("slide", (512, 512), (341, 300), 2, False)
    given = dict(mode="slide", crop_size=512, stride=[341, 300], batch=2, pixel_loss=False)
    assert settings_of(given) == wanted
    assert settings_of(dict(mode="whole", crop_size=(64, 32))).crop_size == (64, 32)


@pytest.mark.parametrize(
    ("test_cfg", "text"),
    [
        (dict(mode="slid"), "mode='slid'.*did you mean 'slide'"),
        (dict(mode="slide", stride=(1, 1)), "crop_size is missing"),
        (dict(mode="slide", crop_size=(64, 64)), "stride is missing"),
        (dict(mode="slide", crop_size=(64, 64), stride=(65, 64)), r"\(65, 64\) is larger than"),
        (dict(mode="slide", crop_size=(64, 64), stride=(0, 8)), r"stride=\(0, 8\); allowed"),
        (dict(mode="slide", crop_size=(64, 64), stride=-8), "stride=-8; allowed"),
        (dict(mode="slide", crop_size=(64,), stride=8), r"crop_size=\(64,\); allowed"),
        (dict(mode="slide", crop_size=64.0, stride=8), "crop_size=64.0; allowed"),
        (dict(crop=64), "unknown key model.test_cfg.crop; .*did you mean 'crop_size'"),
        (dict(batch=0), "batch=0; allowed"),
        (dict(pixel_loss="yes"), "pixel_loss='yes'; allowed: True, False"),
    ],
)
def test_wrong_settings(test_cfg, text):
    with pytest.raises(UserError, match=text):
        settings_of(test_cfg)
