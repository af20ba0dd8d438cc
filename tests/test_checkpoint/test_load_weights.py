"""Weights into modules: the report, the stops, and nothing half done."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from polaformer.checkpoint import CheckpointError, load_weights, write_checkpoint


class Backbone(nn.Module):
    """Ten tensors: five linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(5))

    def get_layer_depth(self, name: str, prefix: str = "") -> tuple[int, int]:
        return 0, 1


class Classifier(nn.Module):
    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Module()
        self.head.fc = nn.Linear(3, classes)


def filled(module: nn.Module, value: float = 0.5) -> dict[str, torch.Tensor]:
    return {key: torch.full_like(tensor, value) for key, tensor in module.state_dict().items()}


def snapshot(module: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def unchanged(module: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_classifier_file_into_a_backbone_ignores_the_head(tmp_path, caplog):
    state = {f"module.{key}": value for key, value in filled(Classifier()).items()}
    write_checkpoint({"model": state}, tmp_path / "cls.pth")
    module = Backbone()
    with caplog.at_level(logging.INFO):
        report = load_weights(module, tmp_path / "cls.pth")
    assert (report.loaded, report.total) == (10, 10)
    assert report.ignored == ["module.head.fc.bias", "module.head.fc.weight"]
    assert report.missing == []
    assert report.container == "model"
    assert str(report) == (
        "10 of 10 loaded (backbone tensors), 0 resized, "
        "ignored: module.head.fc.bias module.head.fc.weight, missing: none"
    )
    assert str(report) in caplog.text
    assert all(bool((value == 0.5).all()) for value in module.state_dict().values())


def test_renamed_file_stops_with_an_example_of_each_side(tmp_path):
    state = {f"foo.{key}": value for key, value in filled(Classifier()).items()}
    write_checkpoint({"model": state}, tmp_path / "foo.pth")
    module = Backbone()
    before = snapshot(module)
    with pytest.raises(CheckpointError) as caught:
        load_weights(module, tmp_path / "foo.pth")
    message = str(caught.value)
    assert "0 of 10" in message
    assert "'foo.backbone.layers.0.weight'" in message
    assert "'layers.0.weight'" in message
    assert str(tmp_path / "foo.pth") in message
    assert "prefix='foo.'" in message
    assert unchanged(module, before)
    assert load_weights(module, tmp_path / "foo.pth", prefix="foo").loaded == 10


def test_a_prefix_that_is_not_there():
    with pytest.raises(CheckpointError, match=r"no name starts with 'teacher\.'; the file has '"):
        load_weights(Backbone(), filled(Backbone()), prefix="teacher.")


def test_bare_backbone_into_a_classifier_counts_the_backbone():
    module = Classifier()
    head = module.head.fc.weight.detach().clone()
    report = load_weights(module, filled(Backbone()), min_match=1.0)
    assert (report.loaded, report.total, report.scope) == (10, 10, "backbone")
    assert report.missing == ["head.fc.bias", "head.fc.weight"]
    assert torch.equal(module.head.fc.weight, head)


def test_whole_classifier_counts_everything():
    report = load_weights(Classifier(), filled(Classifier()))
    assert (report.loaded, report.total, report.scope) == (12, 12, "model")


@pytest.mark.parametrize("absent, works", [(1, True), (2, False)])
def test_min_match_is_a_bound(absent, works):
    """9 of 10 is 90 %, the default bound; 8 of 10 is below."""
    state = filled(Backbone())
    for key in list(state)[:absent]:
        del state[key]
    if works:
        report = load_weights(Backbone(), state)
        assert (report.loaded, report.missing) == (9, ["layers.0.weight"])
        with pytest.raises(CheckpointError, match="9 of 10 tensors match, at least 100%"):
            load_weights(Backbone(), state, min_match=1.0)
    else:
        with pytest.raises(CheckpointError, match="8 of 10 tensors match, at least 90%"):
            load_weights(Backbone(), state)


def test_another_shape_stops_with_both_and_the_key():
    module = Backbone()
    before = snapshot(module)
    state = filled(module)
    state["layers.4.weight"] = torch.zeros(3, 5)
    state["layers.3.weight"] = torch.zeros(3, 5)
    with pytest.raises(CheckpointError) as caught:
        load_weights(module, state)
    message = str(caught.value)
    assert "layers.3.weight has the shape (3, 5) in the file and (3, 3) in the model" in message
    assert "and 1 more differ" in message
    assert unchanged(module, before)
    report = load_weights(module, state, allow_shape_mismatch=["layers.[34].weight"])
    assert report.mismatched == ["layers.3.weight", "layers.4.weight"]
    assert (report.loaded, report.total) == (8, 8)
    assert torch.equal(module.layers[4].weight, before["layers.4.weight"])
    assert "left as they were for their shape: layers.3.weight layers.4.weight" in str(report)


def test_another_number_of_classes():
    state = filled(Classifier(1000))
    module = Classifier(7)
    with pytest.raises(CheckpointError) as caught:
        load_weights(module, state)
    message = str(caught.value)
    assert "(1000, 3) in the file and (7, 3) in the model" in message
    assert "num_classes=1000" in message
    assert "allow_shape_mismatch=['head.*']" in message
    report = load_weights(module, state, allow_shape_mismatch="head.*")
    assert (report.loaded, report.total) == (10, 10)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_stop(bad):
    module = Backbone()
    before = snapshot(module)
    state = filled(module)
    state["layers.2.bias"][1] = bad
    with pytest.raises(CheckpointError, match=r"not finite .*: layers\.2\.bias"):
        load_weights(module, state)
    assert unchanged(module, before)


def test_a_broken_tensor_that_is_not_loaded_does_not_matter():
    state = {**filled(Backbone()), "head.fc.weight": torch.tensor([float("nan")])}
    assert load_weights(Backbone(), state).loaded == 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_cast(dtype):
    module = Backbone()
    load_weights(module, {key: value.to(dtype) for key, value in filled(module).items()})
    assert module.layers[0].weight.dtype == torch.float32
    assert module.layers[0].weight.detach().unique().tolist() == [0.5]


def test_integers_are_no_floats():
    state = filled(Backbone())
    state["layers.0.bias"] = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(CheckpointError, match=r"layers\.0\.bias is torch\.int64 in the file"):
        load_weights(Backbone(), state)


def test_counters_and_derived_buffers():
    """A counter stays an integer; absent counters and position indices do not count."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = filled(module)
    state["1.num_batches_tracked"] = torch.tensor(12)
    state["0.relative_position_index"] = torch.zeros(4, dtype=torch.int64)
    report = load_weights(module, state, min_match=1.0)
    assert module[1].num_batches_tracked.item() == 12
    assert module[1].num_batches_tracked.dtype == torch.int64
    assert (report.loaded, report.ignored) == (7, [])
    del state["1.num_batches_tracked"]
    assert load_weights(module, state, min_match=1.0).missing == ["1.num_batches_tracked"]
    state["1.num_batches_tracked"] = torch.tensor([12])
    assert load_weights(module, state, min_match=1.0).loaded == 7


def test_averaged_weights_on_request(caplog):
    module = Backbone()
    checkpoint = {"model": filled(module, 0.0), "state_dict_ema": filled(module, 1.0)}
    with caplog.at_level(logging.INFO):
        load_weights(module, checkpoint)
    assert "averaged weights under 'state_dict_ema'" in caplog.text
    assert module.layers[0].bias.tolist() == [0, 0, 0]
    load_weights(module, checkpoint, prefer_ema=True)
    assert module.layers[0].bias.tolist() == [1, 1, 1]


def test_given_logger_gets_the_report(caplog):
    logger = logging.getLogger("own")
    with caplog.at_level(logging.INFO, logger="own"):
        load_weights(Backbone(), filled(Backbone()), logger=logger)
    assert [record.name for record in caplog.records] == ["own"]


def test_unknown_converter_gets_the_nearest():
    with pytest.raises(CheckpointError, match="did you mean 'pola-swin'"):
        load_weights(Backbone(), filled(Backbone()), converter="pola_swin")


def test_module_without_tensors():
    with pytest.raises(CheckpointError, match="no tensors to load into"):
        load_weights(nn.ReLU(), filled(Backbone()))


def test_a_deeper_file_is_named(caplog):
    """What the model has no place for in its body is a finding; a head or another part is not."""
    state = filled(Classifier()) | {"backbone.layers.5.weight": torch.ones(3, 3)}
    report = load_weights(Classifier(), state)
    assert (report.loaded, report.total) == (12, 12)
    assert report.surplus == ["backbone.layers.5.weight"]
    assert "1 tensors of blocks or stages have no place in this model" in caplog.text
    assert "example backbone.layers.5.weight" in caplog.text
    caplog.clear()
    extra = filled(Classifier()) | {"aux.weight": torch.ones(3), "backbone.norms.3.bias": 1}
    assert load_weights(Classifier(), extra).surplus == []
    teacher = {f"student.{k}": v for k, v in filled(Classifier()).items()}
    teacher |= {f"teacher.{k}": v for k, v in filled(Classifier()).items()}
    assert load_weights(Classifier(), teacher, prefix="student.").surplus == []
    assert caplog.text == ""
