from __future__ import annotations

import pytest
import torch
from torch import nn

from polaformer.errors import UserError
from polaformer.models import ImageClassifier, LinearHead
from polaformer.registry import MODELS


class StubBackbone(nn.Module):
    """Two maps, strides 4 and 8."""

    channels = (4, 6)

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.channels = (4, width)
        self.first = nn.Conv2d(3, 4, 4, 4)
        self.second = nn.Conv2d(4, width, 2, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = self.first(x)
        return first, self.second(first)


@pytest.fixture(autouse=True)
def _stub():
    MODELS.register_module(name="StubBackbone", module=StubBackbone, force=True)
    yield
    MODELS.module_dict.pop("StubBackbone")


def build(**changes) -> ImageClassifier:
    torch.manual_seed(0)
    cfg = {
        "type": "polaformer.ImageClassifier",
        "backbone": {"type": "polaformer.StubBackbone"},
        "head": {"type": "polaformer.LinearHead", "num_classes": 5},
    }
    for part, values in changes.items():
        cfg[part] = {**cfg.get(part, {}), **values}
    return MODELS.build(cfg)


def test_logits_are_mean_then_linear():
    model = build().eval()
    x = torch.randn(2, 3, 16, 24)
    feats = model.extract_feat(x)
    pooled = feats[-1].flatten(2).mean(-1)
    expected = pooled @ model.head.fc.weight.T + model.head.fc.bias
    assert torch.allclose(model(x), expected, atol=1e-6)


@pytest.mark.parametrize("size", [(16, 16), (8, 40), (25, 33)])
def test_any_image_size_in_one_model(size):
    assert build().eval()(torch.randn(3, 3, *size)).shape == (3, 5)


def test_head_starts_like_the_published_one():
    torch.manual_seed(0)
    head = LinearHead(num_classes=1000, in_channels=512)
    assert head.fc.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert head.fc.bias.abs().max() == 0
    assert {name for name, _ in head.named_parameters()} == {"fc.weight", "fc.bias"}


def test_loss_uses_smoothing_and_has_gradients_everywhere():
    model = build(head={"loss": {"type": "polaformer.ClassificationLoss", "label_smoothing": 0.2}})
    x, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 4])
    losses = model(x, labels, torch.arange(4), mode="loss")
    expected = nn.functional.cross_entropy(model(x), labels, label_smoothing=0.2)
    assert losses["loss"].item() == pytest.approx(expected.item(), abs=1e-6)
    losses["loss"].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_predictions_carry_scores_label_loss_and_index():
    model = build().eval()
    x, labels = torch.randn(3, 3, 16, 16), torch.tensor([4, 0, 1])
    samples = model(x, labels, torch.tensor([7, 8, 9]), mode="predict")
    logits = model(x)
    plain = nn.functional.cross_entropy(logits, labels, reduction="none")
    for i, sample in enumerate(samples):
        assert sample["scores"].dtype == torch.float32
        assert sample["scores"].device.type == "cpu"
        assert torch.allclose(sample["scores"], logits[i].softmax(-1))
        assert (sample["label"], sample["index"]) == (labels[i].item(), 7 + i)
        assert sample["loss"] == pytest.approx(plain[i].item(), abs=1e-6)


def test_predictions_without_labels_have_scores_only():
    samples = build().eval()(torch.randn(2, 3, 16, 16), mode="predict")
    assert [sorted(sample) for sample in samples] == [["scores"], ["scores"]]


def test_train_and_val_step_from_uint8():
    preprocessor = {
        "type": "polaformer.ClsPreprocessor",
        "mixup": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0},
        "random_erasing": {"prob": 0.25},
    }
    model = build(data_preprocessor=preprocessor)
    assert model.data_preprocessor.num_classes == 5
    assert model.data_preprocessor.label_smoothing == 0.1
    data = {
        "inputs": torch.randint(0, 256, (3, 3, 16, 24), dtype=torch.uint8),
        "labels": torch.tensor([0, 3, 4]),
        "indices": torch.tensor([5, 6, 7]),
    }
    prepared = model.data_preprocessor(data, True)
    assert model(**prepared, mode="loss")["loss"].isfinite()
    assert [sample["index"] for sample in model.eval().val_step(data)] == [5, 6, 7]


def test_autocast_gives_a_float32_loss_near_the_full_one():
    model = build().eval()
    x, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 4])
    full = model(x, labels, mode="loss")["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        half = model(x, labels, mode="loss")["loss"]
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(full.item(), rel=1e-2)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"head": {"in_channels": 7}}, r"in_channels is 7.*StubBackbone has 6 channels"),
        ({"data_preprocessor": {"num_classes": 10}}, r"num_classes is 10.*is 5"),
        ({"head": {"num_classes": 0}}, "num_classes is 0"),
        ({"head": {"dropout": 1.5}}, "dropout is 1.5"),
        ({"head": {"type": "polaformer.LinerHead"}}, "did you mean 'LinearHead'"),
    ],
)
def test_disagreeing_parts_are_named(changes, words):
    changes = {
        part: {"type": "polaformer.ClsPreprocessor", **values} if "data" in part else values
        for part, values in changes.items()
    }
    with pytest.raises(UserError, match=words):
        build(**changes)


def test_missing_labels_and_unknown_modes_are_errors():
    model = build()
    with pytest.raises(UserError, match="no 'labels'"):
        model(torch.randn(1, 3, 16, 16), mode="loss")
    with pytest.raises(ValueError, match="did you mean 'predict'"):
        model(torch.randn(1, 3, 16, 16), mode="predicts")
