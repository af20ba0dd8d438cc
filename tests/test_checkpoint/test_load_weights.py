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
    assert "the file's head was trained for 1000 classes, the config has 7" in message
    assert "set num_classes=1000" in message
    assert "allow_shape_mismatch=['head.fc.*']" in message
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


class Layer(nn.Module):
    """A linear layer of a head that knows its number of classes."""

    def __init__(self, num_classes: int, **rows: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        for name, count in rows.items():
            self.add_module(name, nn.Linear(3, count))


class RetinaToy(nn.Module):
    """Four anchors for each class, as in RetinaNet's head."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.backbone, self.neck = Backbone(), nn.Linear(3, 3)
        self.bbox_head = Layer(classes, retina_cls=4 * classes, retina_reg=16)


class CascadeToy(nn.Module):
    """Two stages with N + 1 rows for N classes, and a proposal head that knows no classes."""

    def __init__(self, classes: int = 2, anchors: int = 3) -> None:
        super().__init__()
        self.backbone, self.neck = Backbone(), nn.Linear(3, 3)
        self.rpn_head = Layer(1, rpn_cls=anchors)
        self.roi_head = nn.Module()
        stages = [Layer(classes, fc_cls=classes + 1) for _ in range(2)]
        self.roi_head.bbox_head = nn.ModuleList(stages)


DIGITS = tuple("0123456789")


def checkpoint_of(module: nn.Module, **meta: object) -> dict:
    return {"state_dict": filled(module), "meta": meta}


def refusal(module: nn.Module, checkpoint: dict, **options: object) -> str:
    before = snapshot(module)
    with pytest.raises(CheckpointError) as caught:
        load_weights(module, checkpoint, **options)
    assert unchanged(module, before)
    return str(caught.value)


@pytest.mark.parametrize(
    "meta",
    [
        {"dataset_meta": {"classes": DIGITS}},
        {"dataset_meta": {"CLASSES": list(DIGITS)}},
        {"CLASSES": DIGITS},
    ],
)
def test_the_classes_of_a_detector_are_those_that_its_file_names(meta):
    """The rows of its layers are anchors times classes, or one more than the classes."""
    file = checkpoint_of(RetinaToy(10), **meta)
    told = refusal(RetinaToy(2), file, min_match=0.5)
    assert "retina_cls.weight has the shape (40, 3) in the file and (8, 3) in the model" in told
    assert "the file was trained on 10 classes (0, 1, 2, …), the config has 2" in told
    assert "allow_shape_mismatch=['bbox_head.retina_cls.*']" in told
    assert "num_classes" not in told
    options = {"min_match": 0.5, "allow_shape_mismatch": ["bbox_head.retina_cls.*"]}
    assert load_weights(RetinaToy(2), file, **options).loaded == 14


def test_stages_with_the_same_layer_share_a_pattern():
    file = checkpoint_of(CascadeToy(10), dataset_meta={"classes": DIGITS})
    told = refusal(CascadeToy(2), file)
    assert "trained on 10 classes (0, 1, 2, …), the config has 2" in told
    pattern = "['roi_head.bbox_head.*.fc_cls.*']"
    assert told.endswith(f"load_from=dict(checkpoint=…, allow_shape_mismatch={pattern})")


@pytest.mark.parametrize(
    "file",
    [
        checkpoint_of(RetinaToy(10)),
        checkpoint_of(RetinaToy(10), dataset_meta={"classes": "0123456789"}),
        checkpoint_of(RetinaToy(10), dataset_meta=None, config="text"),
    ],
)
def test_a_detector_without_names_of_classes_gets_no_number(file):
    told = refusal(RetinaToy(2), file)
    assert "allow_shape_mismatch=['bbox_head.retina_cls.*']" in told
    assert "classes" not in told


def test_other_anchors_are_no_other_classes():
    file = checkpoint_of(CascadeToy(2, anchors=5), dataset_meta={"classes": ("a", "b")})
    told = refusal(CascadeToy(2), file)
    assert "classes" not in told
    assert "allow_shape_mismatch=['rpn_head.rpn_cls.*']" in told
    file = checkpoint_of(CascadeToy(2, anchors=5), dataset_meta={"classes": DIGITS})
    assert "classes" not in refusal(CascadeToy(2), file)


def test_where_everything_is_wanted_nothing_is_advised_that_leaves_some_out():
    file = checkpoint_of(RetinaToy(10), dataset_meta={"classes": DIGITS})
    told = refusal(RetinaToy(2), file, min_match=1.0)
    assert "allow_shape_mismatch" not in told
    assert told.endswith("the config has 2: take the config that it was trained with")


def config_of(model: str, backbone: str) -> dict:
    return {"config": {"model": {"type": model, "backbone": {"type": backbone}}}}


def test_a_file_of_another_type_of_model_is_called_that():
    """Whole models are compared by their types, a backbone alone by its own."""
    cascade = checkpoint_of(CascadeToy(), **config_of("mmdet.CascadeToy", "polaformer.Backbone"))
    told = refusal(RetinaToy(), cascade)
    assert told == (
        "the given weights: the file is of a model of type CascadeToy, the config builds a "
        "RetinaToy; 12 of 16 tensors match, at least 90% must; the file has "
        "'rpn_head.rpn_cls.weight', the model wants 'bbox_head.retina_cls.weight'"
    )
    other = checkpoint_of(RetinaToy(), **config_of("RetinaToy", "polaformer.PolaPVT"))
    del (
        other["state_dict"]["backbone.layers.0.weight"],
        other["state_dict"]["backbone.layers.0.bias"],
    )
    told = refusal(RetinaToy(), other)
    assert "the file's backbone is of type PolaPVT, the config builds a Backbone" in told
    del other["state_dict"]["backbone.layers.1.weight"]
    assert "the file's backbone is of type PolaPVT, this is a Backbone" in refusal(
        Backbone(), other
    )
    own = checkpoint_of(CascadeToy(), **config_of("RetinaToy", "Backbone"))
    assert "type" not in refusal(RetinaToy(), own)


def test_another_type_of_model_is_named_with_its_surplus(caplog):
    file = checkpoint_of(RetinaToy(), **config_of("DeepToy", "Backbone"))
    file["state_dict"]["neck.layers.0.weight"] = torch.ones(3)
    report = load_weights(RetinaToy(), file)
    assert (
        report.other_kind == "the file is of a model of type DeepToy, the config builds a RetinaToy"
    )
    assert report.other_kind in caplog.text
