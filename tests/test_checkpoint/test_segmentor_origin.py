"""What a message says where the file of a segmentor meets another model."""

from __future__ import annotations

import pytest
from torch import nn

from polaformer.checkpoint.origin import Origin, origin_of, other_kind


class Segmentor(nn.Module):
    pass


class EncoderDecoder(nn.Module):
    pass


class RetinaNet(nn.Module):
    pass


class PolaPVT(nn.Module):
    pass


def built(kind: type[nn.Module]) -> nn.Module:
    model = kind()
    model.backbone = PolaPVT()
    return model


@pytest.mark.parametrize("known", ["Segmentor", "EncoderDecoder"])
@pytest.mark.parametrize("kind", [Segmentor, EncoderDecoder])
def test_files_of_both_segmentors_are_of_one_kind(known, kind):
    assert other_kind(Origin(model=known, backbone="PolaPVT"), built(kind)) == ""


@pytest.mark.parametrize("known", ["Segmentor", "EncoderDecoder"])
def test_a_detector_is_told_that_the_file_is_of_a_segmentor(known):
    config = {"model": {"type": f"polaformer.{known}", "backbone": {"type": "polaformer.PolaPVT"}}}
    origin = origin_of({"meta": {"config": config}})
    assert other_kind(origin, built(RetinaNet)) == (
        f"the file is of a model of type {known}, the config builds a RetinaNet"
    )
    assert other_kind(origin, PolaPVT()) == ""  # its backbone alone fits
