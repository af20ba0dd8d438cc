from __future__ import annotations

import mmengine.device.utils as device_utils
import pytest
import torch


@pytest.fixture(autouse=True)
def _one_cpu_thread(monkeypatch):
    """Bitwise comparisons and forked children need the CPU and one thread."""
    monkeypatch.setattr(device_utils, "DEVICE", "cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
