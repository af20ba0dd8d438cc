"""A stand-in for ``mmcv._ext``, the compiled part that mmcv-lite comes without.

``finder`` supplies the module where no compiled one is installed, ``extension`` fills it from
``nms``, ``roi``, ``deform`` and ``focal``, which compute with torch and torchvision. Importing this
package loads none of them, and no torch.
"""

from __future__ import annotations

from polaformer.compat.mmcv_ops.finder import NAME, install

__all__ = ["NAME", "install"]
