"""Backbones at the sizes of detection: window padding carries nothing, memory grows with tokens."""

from __future__ import annotations

import pytest
import torch

import polaformer.attention.window as window_module
from polaformer.backbones import build_backbone

ALL = (0, 1, 2, 3)
SIDES = (512, 1024, 2048)


class LoudPadding:
    """torch.nn.functional whose padding is loud instead of zero."""

    def __getattr__(self, name):
        return getattr(torch.nn.functional, name)

    @staticmethod
    def pad(x, pads, value=50.0):
        return torch.nn.functional.pad(x, pads, value=value)


@pytest.mark.parametrize(
    "windows", [{"attention": "pola", "window_size": 56}, {"attention": "softmax"}]
)
def test_what_stands_in_the_padding_of_windows_changes_nothing_at_800_by_1333(windows, monkeypatch):
    torch.manual_seed(0)
    model = build_backbone("PolaSwin", arch="nano", out_indices=ALL, **windows).eval()
    image = torch.randn(1, 3, 800, 1333)
    with torch.no_grad():
        quiet = model(image)
        monkeypatch.setattr(window_module, "F", LoudPadding())
        loud = model(image)
    assert [tuple(m.shape[2:]) for m in quiet] == [(200, 334), (100, 167), (50, 84), (25, 42)]
    for one, other in zip(quiet, loud, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def kept_for_backward(kind, side):
    """Bytes that a forward pass of the linear stages keeps, counted on the meta device."""
    seen: dict[int, int] = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        seen[id(storage)] = storage.nbytes()
        held.append(storage)
        return tensor

    held: list[object] = []
    with torch.device("meta"):
        model = build_backbone(kind, arch="nano", attention="pola", out_indices=ALL)
        image = torch.empty(1, 3, side, side)
    parameters = {id(p.untyped_storage()) for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(image)
    return sum(size for key, size in seen.items() if key not in parameters)


@pytest.mark.parametrize("kind", ["PolaPVT", "PolaSwin"])
def test_memory_of_linear_stages_grows_like_the_number_of_tokens(kind):
    small, middle, large = (kept_for_backward(kind, side) for side in SIDES)
    # Four times the tokens; whole windows make it a little less or more.
    assert middle / small == pytest.approx(4, rel=0.08)
    assert large / middle == pytest.approx(4, rel=0.08)
