from __future__ import annotations

import pytest
import torch
from mmengine.registry import DefaultScope, init_default_scope


@pytest.fixture
def mmseg():
    """mmseg's classes without a prefix, as in its configs; on one thread."""
    module = pytest.importorskip("mmseg")
    threads, scope = torch.get_num_threads(), DefaultScope.get_current_instance()
    torch.set_num_threads(1)
    init_default_scope("mmseg")
    yield module
    torch.set_num_threads(threads)
    init_default_scope(scope.scope_name if scope else "mmengine")
