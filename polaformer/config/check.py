"""The dry run: everything that is wrong with a config at once, then what it would do."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from polaformer.config import (
    detection,
    iterations,
    metrics,
    pipelines,
    rules,
    schema,
    segmentation,
    segmentation_data,
    segmentation_heads,
    segmentation_step,
    tasks,
    trial,
)
from polaformer.config.data_sets import find_data, forget_listings
from polaformer.config.input_size import training_size
from polaformer.config.keys import Finding, find_mistakes
from polaformer.config.load import (
    CLI,
    Overrides,
    located,
    located_once,
    origins_of,
    read_config,
    where,
)
from polaformer.config.measure import half_type, states_per_weight, training_memory
from polaformer.config.parts import part_mistakes, transform_mistakes
from polaformer.config.plan import Plan, Steps
from polaformer.config.segmentation_check import Examined, head_inputs
from polaformer.config.source import show
from polaformer.errors import UserError


def check_file(
    path: str | Path,
    overrides: Overrides = (),
    *,
    presets: Mapping[str, Any] | None = None,
    **options: Any,
) -> Plan:
    """``check_config`` of a file; what its loading refuses stands first among the problems.

    ``presets`` are keyword arguments of ``load_config``, ``options`` of ``check_config``.
    """
    try:
        cfg, refused = read_config(path, overrides, **(presets or {}))
    except UserError as error:
        return Plan(str(path), problems=str(error).splitlines())
    plan = check_config(cfg, **options)
    plan.config = show(path)
    plan.problems = list(dict.fromkeys([*refused, *plan.problems]))
    return plan


def check_config(
    cfg: Mapping[str, Any],
    *,
    require_data: bool = True,
    processes: int | None = None,
    sizes: bool = True,
    keep_listings: bool = False,
) -> Plan:
    """Check a loaded config without training: all problems, then the plan of the run.

    Args:
        require_data: whether data that are not on this machine are a problem or only a note.
        processes: number of training processes; None reads the launcher's WORLD_SIZE.
        sizes: whether to count parameters, multiply-adds and memory too.
        keep_listings: whether the next check may reuse the lists of files read by this one.
    """
    try:
        return _Check(cfg, require_data, processes or launched_processes(), sizes).run()
    finally:
        if not keep_listings:
            forget_listings()


def launched_processes() -> int:
    """Number of processes that the launcher started, or 1."""
    count = os.environ.get("WORLD_SIZE", "")
    return max(int(count), 1) if count.isdigit() else 1


class _Check:
    """One dry run; each step adds to the plan."""

    def __init__(
        self, cfg: Mapping[str, Any], require_data: bool, processes: int, sizes: bool
    ) -> None:
        self.cfg = cfg
        self.require_data = require_data
        self.processes = processes
        self.sizes = sizes
        source = origins_of(cfg).source
        self.plan = Plan(show(source.path) if source else "config")
        conflicting = origins_of(cfg).conflicting  # told on loading
        self.wrong = {key for key in conflicting if key.partition(".")[0] in schema.DATALOADERS}
        self.told: set[Any] = set()

    def run(self) -> Plan:
        import polaformer.registry  # noqa: F401  (registers every name, applies the repairs)

        self._problems(find_mistakes(self.cfg))
        if "default_scope" in self.wrong:  # what any name means depends on it
            return self.plan
        for step in (
            lambda: self._problems(rules.missing_parts(self.cfg)),
            lambda: self._problems(rules.stages(self.cfg)),
            lambda: self._problems(tasks.evaluators(self.cfg)),
            lambda: self._problems(iterations.samplers(self.cfg)),
            lambda: self._problems(segmentation_heads.config_mistakes(self.cfg)),
            lambda: self._problems(segmentation_data.mask_loading(self.cfg)),
            self._weight_files,
            lambda: self._problems(transform_mistakes(self.cfg, self.wrong)),
            self._find_data,
            lambda: self._problems(rules.class_counts(self.cfg, self.plan.data)),
            lambda: self._problems(rules.batches(self.cfg, self.plan.data, self.processes)),
            self._count_steps,
            self._schedule,
            self._parts,
            lambda: self._problems(rules.hooks(self.cfg, self._num_classes())),
            lambda: self._problems(pipelines.unpacked(self.cfg, self.wrong)),
            self._learning_rate,
            lambda: self._problems(head_inputs(self.cfg, self.wrong)),
            self._model,
        ):
            self._take(step)
        return self.plan

    def _take(self, step: Callable[[], None]) -> None:
        """One step; it may trip over a value that was found to be wrong before it."""
        try:
            step()
        except Exception as error:
            if not self.wrong:
                raise
            frames = traceback.extract_tb(error.__traceback__)
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
            text = f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:200]}"
            self.plan.notes.append(f"a later check was given up after these problems ({text})")

    # Findings -----------------------------------------------------------------------------------

    def _problems(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.note or (finding.absent and not self.require_data):
                self.plan.notes += located_once(self.cfg, [finding], self.told)
                continue
            self.wrong.add(finding.key)
            self.plan.problems += located_once(self.cfg, [finding], self.told)

    def _problem(self, key: str, text: str) -> None:
        self._problems([Finding(key, text)])

    def _dict(self, key: str) -> Mapping[str, Any]:
        """A top-level dict, empty where it is missing or something else stands there."""
        value = self.cfg.get(key)
        return value if isinstance(value, Mapping) else {}

    def _touched(self, key: str) -> bool:
        return any(k == key or k.startswith(f"{key}.") for k in self.wrong)

    # Data ---------------------------------------------------------------------------------------

    def _weight_files(self) -> None:
        self._problems(rules.weight_files(self.cfg))

    def _find_data(self) -> None:
        found = find_data(self.cfg, self._touched)
        self.plan.data.update(found.data)
        self._problems(found.mistakes)
        self._problems(metrics.unmasked(self.cfg, found.annotations))
        self._problems(segmentation_data.sizes_in_a_batch(self.cfg, found.listed))

    def _num_classes(self) -> int | None:
        found = next((d for d in self.plan.data.values() if d.classes), None)
        return len(found.classes) if found else None

    # Run ----------------------------------------------------------------------------------------

    def _count_steps(self) -> None:
        loader, loop = self.cfg.get("train_dataloader"), self.cfg.get("train_cfg")
        data = self.plan.data.get("train")
        if not isinstance(loader, Mapping) or not isinstance(loop, Mapping) or data is None:
            return
        epochs, batch = loop.get("max_epochs"), loader.get("batch_size", 1)
        total = iterations.length(self.cfg)
        counted = epochs if total is None else total
        if not isinstance(counted, int) or not isinstance(batch, int) or batch < 1:
            return
        share = -(-data.images // self.processes)
        every = self._dict("optim_wrapper").get("accumulative_counts", 1)
        if total is not None:  # an endless stream fills every batch
            seen, steps = total * batch * self.processes / data.images, -(-share // batch)
            self.plan.steps = Steps(seen, steps, batch, self.processes, every, total)
            return
        dropping = rules.drops_last(loader)
        steps = share // batch if dropping else -(-share // batch)
        self.plan.steps = Steps(counted, steps, batch, self.processes, every)
        if data.images < batch and not dropping:
            text = f"{batch} is more than the {data.images} training images: one short batch"
            self.plan.notes.append(located(self.cfg, Finding("train_dataloader.batch_size", text)))

    def _schedule(self) -> None:
        problems, notes = rules.schedule(self.cfg, self.plan.steps)
        self.plan.pauses, odd = iterations.pauses(self.cfg)
        problems += [*iterations.schedules(self.cfg), *odd]
        # Who shortens a run on the command line wants to see it run, not its learning rate.
        if any(self._shortened(name) for name in ("max_epochs", "max_iters")):
            problems, notes = [], [*problems, *notes]
        self._problems(problems)
        self._problems(replace(note, note=True) for note in notes)

    def _shortened(self, name: str) -> bool:
        length = self._dict("train_cfg").get(name)
        given = where(self.cfg, f"train_cfg.{name}") == CLI
        return given and isinstance(length, int) and length > 0

    def _learning_rate(self) -> None:
        optimizer = self._dict("optim_wrapper").get("optimizer")
        rate = optimizer.get("lr") if isinstance(optimizer, Mapping) else None
        batch = self._dict("train_dataloader").get("batch_size", 1)
        if not isinstance(rate, int | float) or not isinstance(batch, int):
            return
        if rate <= 0:
            self._problem("optim_wrapper.optimizer.lr", f"{rate}; allowed: above 0")
            return
        rule = self._dict("auto_scale_lr")
        base = rule.get("base_batch_size")
        every = self._dict("optim_wrapper").get("accumulative_counts", 1)
        actual = batch * self.processes * every
        self.plan.lr = float(rate)
        if rule.get("enable") and base is None:
            self._problem("auto_scale_lr", "enable=True needs base_batch_size")
        elif rule.get("enable"):
            self.plan.lr = rate * actual / base
            self.plan.lr_rule = f" = {rate:g} x {actual} / {base} (auto_scale_lr)"
        elif base and base != actual:
            text = f"off: lr {rate:g} is meant for {base} images per step, this run has {actual}"
            self.plan.notes.append(located(self.cfg, Finding("auto_scale_lr", text)))

    def _parts(self) -> None:
        steps = self.plan.steps
        self._problems(part_mistakes(self.cfg, self.wrong, steps.per_epoch if steps else None))

    # Model --------------------------------------------------------------------------------------

    def _model(self) -> None:
        model, mistakes = trial.build_model(self.cfg, self.wrong)
        self._problems(mistakes)
        self._problems(trial.optimizer_mistakes(self.cfg, model, frozenset(self.wrong)))
        self._problems(metrics.masks(self.cfg, model))
        if model is None:
            return
        self.plan.model = _describe(model)
        self._last_stage(model)
        self._problems(rules.class_counts(self.cfg, self.plan.data, model))
        misfits = list(detection.mismatches(model, self.cfg["model"]))
        self._problems(misfits)
        if segmentation.is_segmentor(model):
            self._segmentor(model)
            return
        self._unread_maps(model)
        if self.sizes and not misfits:
            self._sizes(model)

    def _segmentor(self, model: Any) -> None:
        examined = Examined(self.cfg, model, training_size(self.cfg, model), self.processes)
        train = self.plan.data.get("train")
        self._problems(examined.findings(train.images if train else None))
        if self.sizes and examined.step is not None:
            self.plan.counted = segmentation_step.counted_parts(model)
            self._sizes(model, examined.step)

    def _unread_maps(self, model: Any) -> None:
        unread = detection.unread_maps(model, self.cfg)
        if unread is not None and self.processes > 1:
            self._problems([unread])
        elif unread is not None:
            self.plan.notes.append(located(self.cfg, unread))

    def _last_stage(self, model: Any) -> None:
        """A head reads the last map of its backbone; stages after it are not built."""
        backbone = getattr(model, "backbone", None)
        last, stages = getattr(backbone, "out_indices", ()), len(getattr(backbone, "depths", ()))
        if hasattr(model, "head") and last and last[-1] + 1 < stages:
            text = f"the head reads stage {last[-1] + 1} of {stages}; later stages are not built"
            note = Finding("model.backbone.out_indices", text)
            self.plan.notes.append(located(self.cfg, note))

    def _sizes(self, model: Any, counted: Any = None) -> None:
        wrapper = self._dict("optim_wrapper")
        size = training_size(self.cfg, model)
        if detection.is_detector(model):
            self.plan.counted = detection.counted_parts(model)
            counted = detection.dense_parts(model)
        counted = model if counted is None else counted
        cost, mistakes = trial.cost_of(counted, size, half_type(wrapper), type(model).__name__)
        self._problems(mistakes)
        self.plan.cost = cost
        loader = self.cfg.get("train_dataloader")
        if cost is None or self.plan.steps is None or not isinstance(loader, Mapping):
            return
        optimizer = wrapper.get("optimizer") or {}
        averaged = any("EMA" in str(h.get("type")) for h in self.cfg.get("custom_hooks") or [])
        per_weight = states_per_weight(optimizer) if not self._touched("optim_wrapper") else 0
        self.plan.memory = training_memory(cost, self.plan.steps.batch_size, per_weight, averaged)


_PARTS = (
    *("backbone", "neck", "head", "rpn_head", "bbox_head", "roi_head", "mask_head"),
    *("decode_head", "auxiliary_head"),
)


def _describe(model: Any) -> str:
    parts = [type(model).__name__]
    parts += [
        type(getattr(model, n)).__name__ for n in _PARTS if getattr(model, n, None) is not None
    ]
    return " of ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]
