"""What the model predicts for a few images, drawn after each validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from PIL import Image, ImageOps

from polaformer.engine import drawers
from polaformer.engine.drawers import Drawer, Shown, entry
from polaformer.engine.hooks.logger import numbers
from polaformer.engine.units import counts_iterations
from polaformer.errors import UserError
from polaformer.registry import HOOKS
from polaformer.visualization.detections import PANEL
from polaformer.visualization.measures import main_measure, number_text, short_name_of
from polaformer.visualization.segmentations import shrink_map

FOLDER = "pictures"


@HOOKS.register_module()
class PictureHook(Hook):
    """Draw a few validation images with what the model predicts, beside what is true.

    After each validation the main process writes ``pictures/epoch_N.png`` (``iter_N.png`` where
    iterations are counted) into the work folder, after a test ``pictures/test.png``. The images are
    the same every time, spread over the data set. Predictions that no drawer of
    ``drawers.DRAWERS`` knows, such as classes of whole images, are passed over. No random number is
    drawn, and a picture that fails never stops a run.

    Args:
        count: images in a picture.
        score_thr: predicted objects below this score are left out.
        interval: draw after every so many epochs (or iterations, where those are counted).

    Raises:
        UserError: a value out of its range.
    """

    priority = "LOWEST"

    def __init__(self, count: int = 8, score_thr: float = 0.3, interval: int = 1) -> None:
        for name, value, fits, allowed in (
            ("count", count, count >= 1, "1 or more"),
            ("score_thr", score_thr, 0 <= score_thr <= 1, "0 to 1"),
            ("interval", interval, interval >= 1, "1 or more"),
        ):
            if not fits:
                raise UserError(f"PictureHook.{name} is {value}; allowed: {allowed}")
        self.count, self.interval = count, interval
        self.drawers: list[Drawer] = [make(score_thr) for make in drawers.DRAWERS]
        self._choices: dict[int, dict[Any, Shown]] = {}
        self._wanted: dict[Any, Shown] = {}
        self._kept: dict[Any, Any] = {}
        self._drawer: Drawer | None = None
        self._off = False

    def before_val_epoch(self, runner: Any) -> None:
        """Choose the images, once."""
        unit, step = _step(runner)
        last = step and step == getattr(runner, f"max_{unit}s", None)
        self._begin(runner, runner.val_dataloader, last or step % self.interval == 0)

    def before_test_epoch(self, runner: Any) -> None:
        """As before a validation."""
        self._begin(runner, runner.test_dataloader, True)

    def after_val_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Keep the predictions for the chosen images."""
        if not self._wanted:
            return
        try:
            self._keep(outputs or ())
        except Exception as error:  # a picture is never worth a run
            self._give_up(runner, error)

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """As after a step of a validation."""
        self.after_val_iter(runner, batch_idx, data_batch, outputs)

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Write the picture of this validation."""
        unit, step = _step(runner)
        name = "iteration" if unit == "iter" else unit
        self._draw(runner, f"{unit}_{step}", f"{name} {step}", metrics)

    def after_test_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Write the picture of the test."""
        self._draw(runner, "test", "test", metrics)

    def _begin(self, runner: Any, loader: Any, due: Any) -> None:
        self._kept, self._wanted, self._drawer = {}, {}, None
        if self._off or not due or not is_main_process():
            return
        dataset = getattr(loader.dataset, "dataset", loader.dataset)
        try:
            if id(dataset) not in self._choices:
                self._choices[id(dataset)] = _choose(dataset, self.count)
            self._wanted = self._choices[id(dataset)]
        except Exception as error:  # as above
            self._give_up(runner, error)

    def _keep(self, outputs: Sequence[Any]) -> None:
        for sample in outputs:
            key = self._key(sample)
            if key is None:
                continue
            drawer = next((drawer for drawer in self.drawers if drawer.knows(sample)), None)
            if drawer is not None:
                self._drawer = drawer
                self._kept[key] = drawer.keep(sample)

    def _key(self, sample: Any) -> Any:
        """The key of a prediction among the chosen images: its id, or else its path."""
        key = entry(sample, "img_id")
        if key is None:
            path = entry(sample, "img_path")
            paths = {shown.info.get("img_path"): key for key, shown in self._wanted.items()}
            key = None if path is None else paths.get(path)
        return key if key in self._wanted else None

    def _draw(self, runner: Any, name: str, what: str, metrics: dict | None) -> None:
        if not self._kept or self._drawer is None:
            return
        shown = [(self._wanted[key], self._kept[key]) for key in self._wanted if key in self._kept]
        try:
            loader = runner.test_dataloader if name == "test" else runner.val_dataloader
            meta = getattr(loader.dataset, "metainfo", None) or {}
            out = Path(runner.work_dir) / FOLDER / f"{name}.png"
            title = f"{Path(runner.work_dir).name}: {what}{_score(metrics)}"
            self._drawer.draw(shown, meta, out, title)
        except Exception as error:  # as above
            self._give_up(runner, error)
        self._kept, self._wanted = {}, {}

    def _give_up(self, runner: Any, error: Exception) -> None:
        self._off, self._wanted, self._kept = True, {}, {}
        runner.logger.warning(
            f"no more pictures of predictions in this run: {type(error).__name__}: {error}"
        )


def _score(metrics: dict | None) -> str:
    """', box AP 0.4131' for the title, or nothing where there is no measure."""
    values = numbers(metrics)
    main = main_measure(values)
    return f", {short_name_of(main)} {number_text(main, values[main])}" if main else ""


def _step(runner: Any) -> tuple[str, int]:
    """'epoch' or 'iter', and how many of them are done; 0 outside of training."""
    loop = getattr(runner, "_train_loop", None)
    unit = "iter" if counts_iterations(loop) else "epoch"
    if loop is None or isinstance(loop, Mapping):
        return unit, 0
    return unit, int(getattr(runner, unit))


def _choose(dataset: Any, count: int) -> dict[Any, Shown]:
    """``count`` images spread over what the main process sees of ``dataset``, by id or path."""
    if not hasattr(dataset, "get_data_info") or not len(dataset):
        return {}
    world = get_world_size()
    places = -(-len(dataset) // world)
    count = min(count, places)
    chosen: dict[Any, Shown] = {}
    for turn in range(count):
        index = world * (turn * (places - 1) // max(count - 1, 1))
        info = dataset.get_data_info(index)
        image = _read(dataset, index, info)
        key = info.get("img_path") if info.get("img_id") is None else info["img_id"]
        if image is None or key is None:
            continue
        size = (int(info.get("width") or image.width), int(info.get("height") or image.height))
        image.thumbnail((PANEL, PANEL))
        chosen[key] = Shown(info, image, size, _read_map(dataset, index))
    return chosen


def _read_map(dataset: Any, index: int) -> np.ndarray | None:
    """The true class map, made small; None where there is none or it cannot be read."""
    if not hasattr(dataset, "read_mask"):
        return None
    try:
        return shrink_map(np.asarray(dataset.read_mask(index)))
    except (OSError, ValueError, UserError, Image.DecompressionBombError):
        return None


def _read(dataset: Any, index: int, info: Mapping[str, Any]) -> Image.Image | None:
    """The image upright and as RGB; None if it cannot be read, which the data set reports."""
    try:
        if hasattr(dataset, "read_image"):
            image = dataset.read_image(index)
        else:
            with Image.open(str(info.get("img_path"))) as opened:
                image = ImageOps.exif_transpose(opened)
        return image.convert("RGB")
    except (OSError, ValueError, UserError, Image.DecompressionBombError):
        return None
