"""Names, units and order of what is measured."""

from __future__ import annotations

import math

import pytest

from polaformer.visualization.measures import (
    class_table,
    families,
    line_of,
    long_name,
    main_measure,
    measures_of,
    number_text,
    short_name_of,
    with_unit,
)

AP = {"bbox_mAP": 0.41234, "bbox_mAP_50": 0.6, "segm_mAP": 0.5, "segm_mAP_s": 0.25}


@pytest.mark.parametrize(
    "values, main",
    [
        ({"loss": 1.0, "top1": 80.0, "top5": 99.0}, "top1"),
        ({"epoch": 3, "lr": 0.1, "val/bbox_mAP": 0.5, "bbox_mAP_50": 0.7}, "val/bbox_mAP"),
        ({"bbox_mAP": None}, "bbox_mAP"),
        ({"loss_cls": 1.0, "note": "x", "flag": True}, None),
        ({}, None),
    ],
)
def test_the_main_measure_is_the_first_that_is_no_loss(values, main) -> None:
    assert main_measure(values) == main


def test_families_follow_their_first() -> None:
    assert families(AP) == {"bbox_mAP": ["bbox_mAP_50"], "segm_mAP": ["segm_mAP_s"]}
    assert families(["top1", "top5", "loss", "loss_cls"]) == {
        "top1": [],
        "top5": [],
        "loss": ["loss_cls"],
    }


def test_a_line_of_a_dozen_values_stays_readable() -> None:
    text = line_of({**AP, "loss": 1.5})
    assert text == "bbox_mAP: 0.4123 (50 0.6000)  segm_mAP: 0.5000 (s 0.2500)  loss: 1.5000"
    assert line_of({"top1": 97.2}) == "top1: 97.2000"
    assert line_of({}) == ""


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("top1", 97.216, "97.22"),
        ("bbox_mAP", 0.41234, "0.4123"),
        ("val/mIoU", 45.678, "45.68"),
        ("IoU", 45.678, "45.68"),
        ("truth", 1234567, "1234567"),
        ("objects", 7, "7"),
        ("bbox_mAP", None, "n/a"),
        ("bbox_mAP", math.nan, "n/a"),
        ("note", "x", "x"),
    ],
)
def test_numbers(key, value, text) -> None:
    assert number_text(key, value) == text


def test_names() -> None:
    assert short_name_of("val/bbox_mAP_75") == "box AP at IoU 0.75"
    assert short_name_of("segm_mAP_l") == "mask AP of large objects"
    assert long_name("top5") == "top-5 accuracy (%)"
    assert long_name("bbox_AR_100") == "box recall, at most 100 per image"
    assert long_name("mIoU") == "mIoU (%)"
    assert long_name("val/aAcc") == "aAcc, accuracy over all pixels (%)"
    assert short_name_of("truth") == "true pixels"
    assert long_name("keypoints_mAP") == "keypoints_mAP"
    assert with_unit("top1", 97.216) == "97.22 % top-1"
    assert with_unit("bbox_mAP", None) == "n/a box AP"


def test_measures_of_records_keep_their_order() -> None:
    records = [{"bbox_mAP": 0.1, "epoch": 1}, {"segm_mAP": 0.1, "bbox_mAP": 0.2, "loss": 1.0}]
    assert measures_of(records) == ["bbox_mAP", "segm_mAP"]


def test_class_tables_of_any_metric() -> None:
    accuracy = class_table({"per_class": {"a": 50.0, "b": None}, "support": {"a": 2}})
    assert accuracy.columns == ("top1", "images")
    assert accuracy.rows == [("a", (50.0, 2)), ("b", (None, 0))]
    table = class_table({"per_class": {"a": {"objects": 3, "x": None}, "b": {"y": 1.0}}})
    assert table.columns == ("objects", "x", "y")
    assert table.rows == [("a", (3, None, None)), ("b", (None, None, 1.0))]
    assert table.main == 1
    assert class_table({"per_class": [1]}).rows == class_table({}).rows == []


def test_overlap_is_what_classes_of_pixels_are_compared_by() -> None:
    row = {"IoU": 60.0, "Acc": 100.0, "Dice": 75.0, "truth": 3, "predicted": 5}
    table = class_table({"per_class": {"wall": row}})
    assert table.main == 0
    assert class_table({"per_class": {"wall": dict(reversed(row.items()))}}).main == 2


def test_the_worst_class_leads_and_unknown_ones_come_last() -> None:
    values = {"a": 0.5, "b": None, "c": 0.25, "d": math.nan}
    table = class_table({"per_class": {k: {"objects": 1, "x": v} for k, v in values.items()}})
    assert [name for name, _ in table.worst_first()] == ["c", "a", "b", "d"]
