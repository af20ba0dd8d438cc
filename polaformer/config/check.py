"""The dry run: everything that is wrong with a config at once, then what it would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from polaformer.config import rules, trial
from polaformer.config.keys import Finding, find_mistakes
from polaformer.config.load import CLI, Overrides, located, origins_of, read_config, where
from polaformer.config.measure import half_type, states_per_weight, training_memory, transform_size
from polaformer.config.parts import part_mistakes
from polaformer.config.plan import DataFound, Plan, Steps
from polaformer.config.refusals import REFUSALS, refusal
from polaformer.config.source import show
from polaformer.config.trial import root_of
from polaformer.errors import UserError

SPLITS = ("train", "val", "test")
IMAGENET_IMAGES = {"train": 1_281_167, "val": 50_000}
"""Sizes of ImageNet-1K (ILSVRC 2012), to plan with where the data are not on this machine."""


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
            trial.forget_listings()


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
        self.wrong: set[str] = set()

    def run(self) -> Plan:
        import polaformer.registry  # noqa: F401  (registers every name, applies the repairs)

        self._problems(find_mistakes(self.cfg))
        if "default_scope" in self.wrong:  # what any name means depends on it
            return self.plan
        for step in (
            lambda: self._problems(rules.missing_parts(self.cfg)),
            self._weight_files,
            self._find_data,
            lambda: self._problems(rules.class_counts(self.cfg, self.plan.data)),
            lambda: self._problems(rules.batches(self.cfg, self.plan.data, self.processes)),
            self._count_steps,
            self._schedule,
            self._parts,
            lambda: self._problems(rules.hooks(self.cfg, self._num_classes())),
            self._learning_rate,
            self._model,
        ):
            self._take(step)
        return self.plan

    def _take(self, step: Callable[[], None]) -> None:
        """One step; it may trip over a value that was found to be wrong before it."""
        try:
            step()
        except Exception:
            if not self.wrong:
                raise

    # Findings -----------------------------------------------------------------------------------

    def _problems(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.wrong.add(finding.key)
            line = located(self.cfg, finding)
            if line not in self.plan.problems:
                self.plan.problems.append(line)

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
        for finding in rules.weight_files(self.cfg):
            self._absent(finding, "does not exist" in finding.text)

    def _find_data(self) -> None:
        told: set[str] = set()
        for split in SPLITS:
            key = f"{split}_dataloader.dataset"
            loader = self.cfg.get(f"{split}_dataloader")
            dataset = loader.get("dataset") if isinstance(loader, Mapping) else None
            kind = dataset.get("type") if isinstance(dataset, Mapping) else None
            if dataset is None or not isinstance(kind, str) or self._touched(key):
                continue
            try:
                found = trial.list_dataset(dataset, self.cfg.get("default_scope"))
                self.plan.data[split] = DataFound(
                    len(found), tuple(found.classes), root_of(dataset)
                )
            except UserError as error:
                if str(error) not in told:
                    self._no_data(key, dataset, str(error))
                told.add(str(error))
                self._expected(split, dataset)
            except REFUSALS as error:
                self._problem(key, refusal(error))

    def _no_data(self, key: str, dataset: Mapping[str, Any], text: str) -> None:
        absent = not Path(root_of(dataset)).expanduser().exists()
        if absent and "prepare_data" not in text and "README" not in text:
            text += "; data/README.md says how to get it"
        self._absent(Finding(key, text), absent)

    def _absent(self, finding: Finding, absent: bool) -> None:
        """A file that is not on this machine: a note where files are not required."""
        if absent and not self.require_data:
            self.plan.notes.append(located(self.cfg, finding))
        else:
            self._problems([finding])

    def _expected(self, split: str, dataset: Mapping[str, Any]) -> None:
        """Plan with the published sizes of ImageNet where it is not here."""
        images = IMAGENET_IMAGES.get(dataset.get("split", "train"))
        if str(dataset["type"]).endswith("ImageNet") and images and not dataset.get("classes"):
            from timm.data import ImageNetInfo

            names = tuple(ImageNetInfo("imagenet-1k").label_names())
            self.plan.data[split] = DataFound(images, names, root_of(dataset), present=False)

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
        if not isinstance(epochs, int) or not isinstance(batch, int) or batch < 1:
            return
        share = -(-data.images // self.processes)
        steps = share // batch if loader.get("drop_last") else -(-share // batch)
        wrapper = self._dict("optim_wrapper")
        every = wrapper.get("accumulative_counts", 1)
        self.plan.steps = Steps(epochs, steps, batch, self.processes, every)
        if data.images < batch and not loader.get("drop_last"):
            text = f"{batch} is more than the {data.images} training images: one short batch"
            self.plan.notes.append(located(self.cfg, Finding("train_dataloader.batch_size", text)))

    def _schedule(self) -> None:
        problems, notes = rules.schedule(self.cfg, self.plan.steps)
        # Who shortens a run on the command line wants to see it run, not its learning rate.
        if where(self.cfg, "train_cfg.max_epochs") == CLI and self._positive_epochs():
            problems, notes = [], [*problems, *notes]
        self._problems(problems)
        self.plan.notes += [located(self.cfg, note) for note in notes]

    def _positive_epochs(self) -> bool:
        epochs = self._dict("train_cfg").get("max_epochs")
        return isinstance(epochs, int) and epochs > 0

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
        if not self._touched("optim_wrapper"):
            self._problems(trial.optimizer_mistakes(self.cfg, model))
        if model is None:
            return
        self.plan.model = _describe(model)
        self._last_stage(model)
        if self.sizes:
            self._sizes(model)

    def _last_stage(self, model: Any) -> None:
        """A head reads the last map of its backbone; stages after it are not built."""
        backbone = getattr(model, "backbone", None)
        last, stages = getattr(backbone, "out_indices", ()), len(getattr(backbone, "depths", ()))
        if hasattr(model, "head") and last and last[-1] + 1 < stages:
            text = f"the head reads stage {last[-1] + 1} of {stages}; later stages are not built"
            note = Finding("model.backbone.out_indices", text)
            self.plan.notes.append(located(self.cfg, note))

    def _sizes(self, model: Any) -> None:
        wrapper = self._dict("optim_wrapper")
        size = self._input_size(model)
        cost, mistakes = trial.cost_of(model, size, half_type(wrapper))
        self._problems(mistakes)
        self.plan.cost = cost
        loader = self.cfg.get("train_dataloader")
        if cost is None or self.plan.steps is None or not isinstance(loader, Mapping):
            return
        optimizer = wrapper.get("optimizer") or {}
        averaged = any("EMA" in str(h.get("type")) for h in self.cfg.get("custom_hooks") or [])
        per_weight = states_per_weight(optimizer) if not self._touched("optim_wrapper") else 0
        self.plan.memory = training_memory(cost, self.plan.steps.batch_size, per_weight, averaged)

    def _input_size(self, model: Any) -> tuple[int, int]:
        """Height and width that the model is trained on."""
        for split in SPLITS:
            dataset = self._dict(f"{split}_dataloader").get("dataset")
            size = transform_size(dataset.get("transforms") if dataset else None)
            if size is not None:
                return size
        size = (self.cfg["model"].get("backbone") or {}).get("img_size", 224)
        return (size, size) if isinstance(size, int) else (size[0], size[1])


def _describe(model: Any) -> str:
    parts = [type(model).__name__]
    parts += [
        type(getattr(model, n)).__name__ for n in ("backbone", "neck", "head") if hasattr(model, n)
    ]
    return " of ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]
