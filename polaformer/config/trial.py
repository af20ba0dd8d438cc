"""Trial builds of the parts of a config: their constructors know best what they refuse."""

from __future__ import annotations

import copy
import io
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.measure import Cost, build_on_meta, measure
from polaformer.config.refusals import REFUSALS, raising_line, refusal
from polaformer.config.signatures import keywords_of, resolve
from polaformer.errors import UserError


@contextmanager
def quiet() -> Iterator[None]:
    """No informational log lines and nothing printed: a dry run speaks through its plan."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with redirect_stdout(io.StringIO()):  # pycocotools tells how long it reads
            yield
    finally:
        logging.disable(before)


def build_model(cfg: Mapping[str, Any], wrong: set[str]) -> tuple[Any, list[Finding]]:
    """The model on the meta device, or None, and what its constructors refuse.

    If it cannot be built each part is tried by itself, so that one mistake does not hide the next.
    ``wrong`` are the keys that are known to be mistakes: they are left out then.
    """
    model_cfg = cfg.get("model")
    if not isinstance(model_cfg, Mapping) or wrong & {"model", "model.type"}:
        return None, []
    scope = cfg.get("default_scope")
    known = [key for key in wrong if key.startswith("model.")]
    refused: list[Finding] = []
    if not known:
        model, refused = _try(model_cfg, "model", scope, lenient=False)
        if model is not None:
            return model, []
    return None, _try_parts(model_cfg, known, scope) or refused


def build_part(part: Any, key: str, scope: str | None, wrong: set[str]) -> Any:
    """A part of the model alone on the meta device, or None where it or its config is wrong."""
    if not isinstance(part, Mapping) or any(k == key or k.startswith(f"{key}.") for k in wrong):
        return None
    return _try(part, key, scope, lenient=True)[0]


def missing_arguments(part: Mapping[str, Any], scope: str | None) -> list[str]:
    """Names of the arguments that a part of the model cannot be built without."""
    try:
        with quiet():
            build_on_meta(part, scope)
    except TypeError as error:
        return re.findall(r"'(\w+)'", str(error)) if "required" in str(error) else []
    except Exception:  # other mistakes are told where the whole model is built
        return []
    return []


_INPUTS = ("in_channels", "in_index", "feature_strides")
"""Keys of necks and heads that depend on each other: without one of them no trial is fair."""


def _try_parts(model_cfg: Mapping[str, Any], known: list[str], scope: str | None) -> list[Finding]:
    cleaned = copy.deepcopy(dict(model_cfg))
    untyped = _leave_out(cleaned, known)
    head = cleaned.get("head")
    classes = head.get("num_classes") if isinstance(head, Mapping) else None
    # What a model hands from one part to another; any value does for a trial.
    handed = {"in_channels": 8, "num_classes": classes if isinstance(classes, int) else 2}
    findings = []
    for name, part in cleaned.items():
        if any(f"model.{name}.{last}" in known for last in _INPUTS):
            continue
        if isinstance(part, Mapping) and "type" in part and name not in untyped:
            given = {**handed, "num_classes": 1} if name == "rpn_head" else handed
            filled = {**part} if name == "backbone" else {**_accepted(part, given, scope), **part}
            findings += _try(filled, f"model.{name}", scope, lenient=True)[1]
    return findings


def _accepted(part: Mapping[str, Any], values: Mapping[str, Any], scope: str | None) -> dict:
    target = resolve(part["type"], "MODELS", scope)
    names = keywords_of(target).names if target is not None else ()
    return {name: value for name, value in values.items() if name in names}


def _leave_out(cleaned: dict, keys: list[str]) -> set[str]:
    """Delete wrong keys in place; returns the parts of which a type is unknown."""
    untyped = set()
    for key in keys:
        _, *parents, last = key.split(".")
        if last == "type":
            untyped.add(parents[0] if parents else "")
            continue
        node: Any = cleaned
        for part in parents:
            node = node[int(part)] if isinstance(node, list | tuple) else node.get(part, {})
        if isinstance(node, dict):
            node.pop(last, None)
    return untyped


def _try(
    part: Mapping[str, Any], key: str, scope: str | None, lenient: bool
) -> tuple[Any, list[Finding]]:
    """Build one part; a part that waits for arguments of the whole is no mistake if ``lenient``."""
    try:
        with quiet():
            return build_on_meta(part, scope), []
    except UserError as error:
        return None, [Finding(key, str(error))]
    except Exception as error:  # also a fault of ours is better told before training than in it
        if isinstance(error, TypeError) and "required" in str(error):
            return None, [] if lenient else [Finding(key, str(error).replace(".__init__()", ""))]
        return None, [Finding(key, f"{part.get('type')} cannot be built: {_named(error)}")]


def _named(error: Exception) -> str:
    """The exception's name and its first line; an empty one is told by the line that raised it."""
    text = str(error).partition("\n")[0] or raising_line(error)
    if isinstance(error, AssertionError) and text.startswith("assert "):
        return refusal(error)
    return f"{type(error).__name__}: {text}".rstrip(": ")


def cost_of(
    model: Any, size: tuple[int, int], half: Any, name: str
) -> tuple[Cost | None, list[Finding]]:
    """What ``measure`` finds out with one image, or that the model ``name`` cannot take it."""
    try:
        return measure(model, size, half), []
    except Exception as error:  # whatever stops this image stops the first of the training
        text = f"{name} fails on an image of {size[0]} x {size[1]}: {_named(error)}"
        return None, [Finding("model", text)]


def optimizer_mistakes(
    cfg: Mapping[str, Any], model: Any, wrong: Collection[str] = ()
) -> list[Finding]:
    """What the optimiser's constructor refuses; with a model also what does not fit it.

    Keys in ``wrong`` are left out, so that a mistake in one place does not hide the next.
    """
    wrapper = cfg.get("optim_wrapper")
    if not isinstance(wrapper, Mapping) or wrapper.get("optimizer") is None:
        return []
    known = [key for key in wrong if key.partition(".")[0] == "optim_wrapper"]
    if any(key.count(".") == 0 or key.endswith((".optimizer", ".type")) for key in known):
        return []
    if known:
        wrapper = copy.deepcopy(dict(wrapper))
        _leave_out(wrapper, known)
        if any(key.startswith("optim_wrapper.clip_grad") for key in known):
            wrapper.pop("clip_grad", None)
    from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, DefaultScope

    half = ("dtype", "loss_scale", "use_fsdp")
    plain = {k: v for k, v in wrapper.items() if k not in (*half, "constructor", "paramwise_cfg")}
    plain["type"] = "OptimWrapper"
    constructor = dict(
        type=wrapper.get("constructor") or "DefaultOptimWrapperConstructor",
        optim_wrapper_cfg=plain,
        paramwise_cfg=copy.deepcopy(wrapper.get("paramwise_cfg")),
    )
    try:
        with quiet(), DefaultScope.overwrite_default_scope(cfg.get("default_scope")):
            built = OPTIM_WRAPPER_CONSTRUCTORS.build(constructor)
            if model is not None:
                built(model)
    except REFUSALS as error:
        return [Finding("optim_wrapper", refusal(error))]
    return []
