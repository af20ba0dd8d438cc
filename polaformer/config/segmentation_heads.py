"""What the config of a segmentation model must say: heads, losses, windows of a test, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polaformer.config.input_size import pair
from polaformer.config.keys import Finding
from polaformer.config.pipelines import crops_of, kind_of, typed
from polaformer.config.signatures import resolve
from polaformer.errors import did_you_mean

MODES = ("whole", "slide")
IGNORED = 255
"""Value of a mask's pixels that count for nothing."""
_WEIGHTS = ("class_weight", "alpha")
"""Keywords of losses that may hold one number for each class."""


def is_segmentation(cfg: Mapping[str, Any]) -> bool:
    """Whether the model of a config labels pixels."""
    model = cfg.get("model")
    return isinstance(model, Mapping) and "decode_head" in model and "roi_head" not in model


def heads_in(model: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Key and config of every head, those of a list one by one."""
    for name in ("decode_head", "auxiliary_head"):
        yield from typed(f"model.{name}", model.get(name))


def config_mistakes(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything about the model that its config alone tells."""
    if not is_segmentation(cfg):
        return
    model = cfg["model"]
    for key, head in heads_in(model):
        if compares_as_usual(resolve(head.get("type"), "MODELS", cfg.get("default_scope"))):
            yield from _classes(key, head)
            yield from _weights(key, head)
        ignored = head.get("ignore_index", IGNORED)
        if ignored is not None and ignored != IGNORED:
            text = f"{ignored}, but what is to be ignored is {IGNORED} in every mask"
            yield Finding(f"{key}.ignore_index", f"{text}; leave ignore_index out")
    yield from _windows(model, crops_of(cfg, "train_dataloader"))
    yield from _preprocessor(model, cfg)


def compares_as_usual(head_class: Any) -> bool:
    """Whether a class of heads compares scores and masks as mmseg's base of all heads does.

    Others may have more or other outputs than classes.
    """
    method = getattr(head_class, "loss_by_feat", None)
    return getattr(method, "__qualname__", "").startswith("BaseDecodeHead.")


def _classes(key: str, head: Mapping[str, Any]) -> Iterator[Finding]:
    number, outputs = head.get("num_classes"), head.get("out_channels")
    if not isinstance(number, int):
        return
    if head.get("threshold") is not None and (number if outputs is None else outputs) != 1:
        text = "has no effect: with an output for each class the largest one decides"
        yield Finding(f"{key}.threshold", text, note=True)
    sigmoid = [loss for _, loss in losses(key, head) if loss.get("use_sigmoid")]
    ours = [loss for _, loss in losses(key, head) if "polaformer.Pixel" in str(loss.get("type"))]
    if isinstance(outputs, int) and outputs not in (number, 1):
        text = f"{outputs}, but num_classes is {number}; leave out_channels out"
        yield Finding(f"{key}.out_channels", text, because=f"{key}.num_classes")
    elif outputs == 1 and number > 2:
        text = f"1 tells two classes apart, but num_classes is {number}; leave out_channels out"
        yield Finding(f"{key}.out_channels", text, because=f"{key}.num_classes")
    elif outputs == 1 and not sigmoid and not ours:
        text = "one output for two classes is learned with use_sigmoid=True in loss_decode only"
        yield Finding(f"{key}.out_channels", f"{text}; write so, or leave out_channels out")
    if number == 1 and not sigmoid:
        text = "with a single class nothing is to be learned; name what is around it too, as in "
        yield Finding(f"{key}.num_classes", f"{text}classes = ('background', …)")
    elif number == 2 and outputs is None:
        text = "2 classes with an output each; the advice of out_channels=1 in the log may be left"
        yield Finding(f"{key}.num_classes", text, note=True)


def losses(key: str, head: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Key and config of every loss of a head."""
    yield from typed(f"{key}.loss_decode", head.get("loss_decode"))


def _weights(key: str, head: Mapping[str, Any]) -> Iterator[Finding]:
    number = head.get("num_classes")
    for at, loss in losses(key, head):
        for name in _WEIGHTS:
            given = loss.get(name)
            if not isinstance(given, list | tuple) or not isinstance(number, int):
                continue
            if len(given) != number:
                text = f"{len(given)} weights for {number} classes; write one for each in their "
                text += f"order, or {name}=None"
                yield Finding(f"{at}.{name}", text, because=f"{key}.num_classes")


def _windows(
    model: Mapping[str, Any], crops: Sequence[tuple[str, tuple[int, int]]]
) -> Iterator[Finding]:
    """Sliding windows cover the image, and what is said about them is read."""
    test = model.get("test_cfg")
    if not isinstance(test, Mapping):
        return
    mode, key = test.get("mode", "whole"), "model.test_cfg"
    if mode not in MODES:
        hint = did_you_mean(str(mode), MODES)
        text = f"no test mode is named {mode!r}; {hint + ' ' if hint else ''}allowed: "
        yield Finding(f"{key}.mode", text + ", ".join(MODES))
        return
    given = {name: test[name] for name in ("crop_size", "stride") if test.get(name) is not None}
    if mode == "whole":
        for name in given:
            text = "has no effect in mode 'whole'; write mode='slide' for windows"
            yield Finding(f"{key}.{name}", text, note=True)
        return
    side = crops[0][1] if crops else (512, 512)
    ideal = {"crop_size": side, "stride": (max(side[0] * 2 // 3, 1), max(side[1] * 2 // 3, 1))}
    for name in ideal:
        if name not in given:
            yield Finding(key, f"mode 'slide' needs {name}; write {name}={ideal[name]}")
        elif not _positive(given[name]):
            text = f"{given[name]!r}; allowed: a height and a width of 1 and more"
            yield Finding(f"{key}.{name}", f"{text}, as {ideal[name]}")
    window, stride = (_positive(given.get(name)) for name in ideal)
    if window and stride and (stride[0] > window[0] or stride[1] > window[1]):
        text = f"{stride} steps over pixels between windows of {window}; write at most {window}"
        yield Finding(f"{key}.stride", text, because=f"{key}.crop_size")
    for at, crop in crops[:1]:
        if window and window != crop:
            text = f"{window}, but training sees crops of {crop}"
            yield Finding(f"{key}.crop_size", text, because=at, note=True)


def _positive(value: Any) -> tuple[int, int] | None:
    """A height and a width of 1 and more, also from one number, or None."""
    longer = isinstance(value, list | tuple) and len(value) != 2
    found = None if longer else pair(value)
    return found if found and min(found) > 0 else None


def _preprocessor(model: Mapping[str, Any], cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Images of a batch are filled up to one size, their masks with what is ignored."""
    part, key = model.get("data_preprocessor"), "model.data_preprocessor"
    if not isinstance(part, Mapping) or kind_of(part) != "SegDataPreProcessor":
        return
    size, divisor = part.get("size"), part.get("size_divisor")
    crops = crops_of(cfg, "train_dataloader")
    if cfg.get("train_dataloader") is not None and (size is None) == (divisor is None):
        both = "only one of size and size_divisor may be given"
        choice = f"size={crops[0][1]}" if crops else "size_divisor=32"
        yield Finding(key, both if size is not None else f"needs size or size_divisor; {choice}")
    filled = pair(size)
    for at, crop in crops if filled else ():
        assert filled is not None
        if crop[0] > filled[0] or crop[1] > filled[1]:
            text = f"{filled} is less than crops of {crop}, so images of a batch may differ; "
            yield Finding(f"{key}.size", f"{text}write size={crop}", because=at)
        elif crop != filled:
            text = f"{filled} fills up crops of {crop} with pixels that count for nothing; "
            yield Finding(f"{key}.size", f"{text}write size={crop}", because=at, note=True)
    value = part.get("seg_pad_val", IGNORED)
    if value != IGNORED:
        text = f"{value}, so the filled-up margin is learned as a class; write {IGNORED}"
        yield Finding(f"{key}.seg_pad_val", text)
