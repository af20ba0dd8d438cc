"""What the model predicts for a few images, drawn after each validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from PIL import Image, ImageOps

from polaformer.coco_format import read_coco
from polaformer.engine.hooks.logger import numbers
from polaformer.errors import UserError
from polaformer.registry import HOOKS
from polaformer.visualization.detections import (
    MAX_OBJECTS,
    PANEL,
    Scene,
    Thing,
    draw_detections,
    mask_of,
    shrink,
)
from polaformer.visualization.measures import main_measure, number_text, short_name_of

FOLDER = "pictures"


@dataclass
class Shown:
    """One image of the choice: what the data set says of it, and its pixels, made small."""

    info: dict[str, Any]
    image: Image.Image
    size: tuple[int, int]


class Drawer(Protocol):
    """How predictions of one task are kept and drawn."""

    def knows(self, sample: Any) -> bool:
        """Whether a prediction is of this task."""

    def keep(self, sample: Any) -> Any:
        """What is needed of a prediction to draw it later, small and in main memory."""

    def draw(
        self, shown: Sequence[tuple[Shown, Any]], meta: Mapping[str, Any], out: Path, title: str
    ) -> None:
        """Write the picture; ``meta`` is the data set's ``metainfo``."""


@dataclass
class DetectionDrawer:
    """Boxes, and masks where there are any, of ``pred_instances``; truth from the data set."""

    score_thr: float

    def knows(self, sample: Any) -> bool:
        """Whether there are predicted instances."""
        return _entry(sample, "pred_instances") is not None

    def keep(self, sample: Any) -> tuple[list[Thing], str]:
        """The best objects as far as they reach the threshold, and a note about the others."""
        found = _entry(sample, "pred_instances")
        boxes = _array(_entry(found, "bboxes")).reshape(-1, 4)
        scores = _array(_entry(found, "scores")).ravel()
        labels = _array(_entry(found, "labels")).ravel().astype(int)
        masks = _entry(found, "masks")
        order = np.argsort(-scores, kind="stable")
        good = [int(i) for i in order if scores[i] >= self.score_thr][:MAX_OBJECTS]
        things = [
            Thing(
                _box(boxes[i]),
                int(labels[i]),
                "",
                float(scores[i]),
                None if masks is None else _small_mask(masks[i]),
            )
            for i in good
        ]
        above = int((scores >= self.score_thr).sum())
        if above > len(good):
            return things, f"the best of {above}"
        if not good and scores.size:
            return things, f"best score {scores.max():.2f}"
        return things, f"score {self.score_thr:g} or more"

    def draw(
        self, shown: Sequence[tuple[Shown, Any]], meta: Mapping[str, Any], out: Path, title: str
    ) -> None:
        """Write every image twice, with true and with predicted objects."""
        classes = meta.get("classes", ())
        masks = any(thing.mask is not None for _, (things, _) in shown for thing in things)
        scenes = []
        for item, (things, note) in shown:
            named = [replace(thing, name=_name(thing.label, classes)) for thing in things]
            name = Path(str(item.info.get("img_path", ""))).name
            truth = _truth(item, meta, masks)
            scenes.append(Scene(item.image, item.size, named, truth, name, note))
        draw_detections(scenes, out, title=title)


def _small_mask(mask: Any) -> np.ndarray | None:
    """One predicted mask, an array or run lengths, made small."""
    if isinstance(mask, Mapping):
        return mask_of(mask, (1, 1))
    return _array(shrink(mask)).astype(bool)


def _truth(item: Shown, meta: Mapping[str, Any], masks: bool) -> list[Thing] | None:
    """The true objects; masks that a data set does not load come from its annotation file."""
    instances = item.info.get("instances")
    if masks and meta.get("ann_file") and not any("mask" in one for one in instances or ()):
        instances = list(_from_file(meta, item.info["img_id"]))
    if instances is None:
        return None
    return [
        Thing(
            _box(instance["bbox"]),
            int(instance["bbox_label"]),
            _name(int(instance["bbox_label"]), meta.get("classes", ())),
            mask=mask_of(instance.get("mask"), item.size),
            crowd=bool(instance.get("ignore_flag")),
        )
        for instance in instances
    ]


def _from_file(meta: Mapping[str, Any], image_id: Any) -> Iterator[dict[str, Any]]:
    labels = {category: label for label, category in enumerate(meta["category_ids"])}
    for one in read_coco(meta["ann_file"]).by_image.get(image_id, ()):
        if one["category_id"] in labels:
            x, y, width, height = one["bbox"]
            yield {
                "bbox": [x, y, x + width, y + height],
                "bbox_label": labels[one["category_id"]],
                "mask": one["segmentation"],
                "ignore_flag": one["iscrowd"],
            }


@HOOKS.register_module()
class PictureHook(Hook):
    """Draw a few validation images with what the model predicts, beside what is true.

    After each validation the main process writes ``pictures/epoch_N.png`` into the work folder,
    after a test ``pictures/test.png``. The images are the same every time, spread over the data
    set. Predictions of a task without a drawer, such as classes of whole images, are passed over.
    No random number is drawn, and a picture that fails never stops a run.

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
        self.drawers: list[Drawer] = [DetectionDrawer(score_thr)]
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
        self._draw(runner, f"{unit}_{step}", f"{unit} {step}", metrics)

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
            key = _entry(sample, "img_id")
            if key is None or key not in self._wanted:
                continue
            drawer = next((drawer for drawer in self.drawers if drawer.knows(sample)), None)
            if drawer is not None:
                self._drawer = drawer
                self._kept[key] = drawer.keep(sample)

    def _draw(self, runner: Any, name: str, what: str, metrics: dict | None) -> None:
        if not self._kept or self._drawer is None:
            return
        shown = [(self._wanted[key], self._kept[key]) for key in self._wanted if key in self._kept]
        values = numbers(metrics)
        main = main_measure(values)
        score = f", {short_name_of(main)} {number_text(main, values[main])}" if main else ""
        title = f"{Path(runner.work_dir).name}: {what}{score}"
        loader = runner.test_dataloader if name == "test" else runner.val_dataloader
        meta = getattr(loader.dataset, "metainfo", None) or {}
        try:
            out = Path(runner.work_dir) / FOLDER / f"{name}.png"
            self._drawer.draw(shown, meta, out, title)
        except Exception as error:  # as above
            self._give_up(runner, error)
        self._kept, self._wanted = {}, {}

    def _give_up(self, runner: Any, error: Exception) -> None:
        self._off, self._wanted, self._kept = True, {}, {}
        runner.logger.warning(
            f"no more pictures of predictions in this run: {type(error).__name__}: {error}"
        )


def _step(runner: Any) -> tuple[str, int]:
    """'epoch' or 'iter', and how many of them are done; 0 outside of training."""
    unit = "epoch" if getattr(runner.log_processor, "by_epoch", True) else "iter"
    loop = getattr(runner, "_train_loop", None)
    if loop is None or isinstance(loop, Mapping):
        return unit, 0
    return unit, int(getattr(runner, unit))


def _choose(dataset: Any, count: int) -> dict[Any, Shown]:
    """By image id, ``count`` images spread over what the main process sees of ``dataset``."""
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
        if image is None or info.get("img_id") is None:
            continue
        size = (int(info.get("width") or image.width), int(info.get("height") or image.height))
        image.thumbnail((PANEL, PANEL))
        chosen[info["img_id"]] = Shown(info, image, size)
    return chosen


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


def _entry(holder: Any, name: str) -> Any:
    """An entry of a data sample or of a dict; None where it has none."""
    return holder.get(name) if hasattr(holder, "get") else getattr(holder, name, None)


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.numpy() if value.dtype.itemsize != 2 else value.float().numpy()
    return np.asarray(value)


def _box(values: Any) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (float(value) for value in values)
    return x1, y1, x2, y2


def _name(label: int, classes: Sequence[str]) -> str:
    return str(classes[label]) if 0 <= label < len(classes) else f"class {label}"
