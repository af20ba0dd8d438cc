"""The one launcher behind every tool: options in, a trained or tested model out.

Only the standard library is imported here; torch and mmengine load when something is launched.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polaformer.errors import UserError, did_you_mean, nearest

DEVICES = ("auto", "cpu", "cuda")
TRACKERS = {"wandb": "polaformer.WandbBackend", "tensorboard": "polaformer.TensorboardBackend"}


@dataclass
class Options:
    """What training and testing have in common.

    Args:
        config: path of the recipe.
        work_dir: where to write; ``work_dirs/<config name>`` by default.
        amp: 'bf16' or 'fp16'.
        device: 'auto' (CUDA where there is one), 'cpu' or 'cuda'.
        cfg_options: overrides of the config, ``{'a.b': value}`` or ``['a.b=value', …]``.
    """

    config: str | Path
    work_dir: str | Path | None = None
    amp: str | None = None
    seed: int | None = None
    deterministic: bool = False
    device: str = "auto"
    cfg_options: Mapping[str, Any] | Sequence[str] = field(default_factory=dict)


@dataclass
class TrainOptions(Options):
    """Options of ``train``.

    Args:
        resume: 'auto' continues from the newest whole checkpoint in the work folder; a path
            continues from that file.
        trackers: 'wandb', 'tensorboard', in addition to the config's.
    """

    resume: str | Path | None = None
    trackers: Sequence[str] = ()


@dataclass
class TestOptions(Options):
    """Options of ``test``; without ``work_dir`` results go beside the checkpoint.

    ``checkpoint`` is a file, or a work folder whose newest whole checkpoint is taken. ``tta`` tests
    each image in the several forms of the config's ``tta_pipeline``, merged by its ``tta_model``.
    Without ``amp`` a checkpoint is tested in the number format in which its run validated.
    """

    __test__ = False  # pytest would take the name for a test case

    checkpoint: str | Path = ""
    tta: bool = False


def train(options: TrainOptions) -> Any:
    """Train as the config says and return the runner.

    Raises:
        UserError: what is wrong with config, data, weights or options, all findings together.
    """
    from polaformer.engine.data import dead_workers_told

    device = choose_device(options.device)
    auto = options.resume in (True, "auto")
    cfg = _load(options, options.work_dir, None if auto else options.resume)
    if auto:
        cfg["resume"] = "auto"
    _add_trackers(cfg, options.trackers)
    _check(cfg, options)
    runner = _build_runner(cfg, device)
    try:
        with dead_workers_told():
            runner.train()
    except KeyboardInterrupt as error:
        _note_end(runner, error)
        saved = str(error) or "interrupted; the last checkpoint is that of the last full interval"
        raise KeyboardInterrupt(f"{saved}. Continue with --resume") from None
    except BaseException as error:
        _note_end(runner, error)
        raise
    return runner


def test(options: TestOptions) -> dict[str, Any]:
    """Test a checkpoint; prints a table, writes ``metrics.json`` and returns its content.

    Beside it each metric writes the prediction for every image, in the form of its task. Where the
    metrics only write predictions, they go to a folder 'predict_<config>' beside the checkpoint.

    Raises:
        UserError: see ``train``; also a checkpoint that does not hold the whole model, or a config
            without ``tta_model`` and ``tta_pipeline`` where ``tta`` asks for them.
    """
    from polaformer.engine.data import dead_workers_told
    from polaformer.engine.loops import training_amp

    device = choose_device(options.device)
    path = _checkpoint_file(Path(options.checkpoint))
    cfg = _load(options, options.work_dir or path.resolve().parent)
    if options.work_dir is None and _measures_nothing(cfg):
        # What was measured with this checkpoint stays beside it.
        cfg["work_dir"] = str(path.resolve().parent / f"predict_{Path(options.config).stem}")
    configured = training_amp(cfg)
    _keep_test_parts(cfg)
    if options.tta:
        _take_tta_pipeline(cfg, options)
    _check(cfg, options)
    cfg["load_from"], cfg["resume"] = {"checkpoint": str(path), "min_match": 1.0}, False
    number_format = _choose_number_format(cfg, configured, path, asked=options.amp is not None)
    runner = _build_runner(cfg, device)
    runner.logger.info(number_format)
    if options.tta:
        _wrap_before_test(runner, cfg["tta_model"])
    with dead_workers_told():
        metrics = runner.test()
    return _report(runner, metrics, path, options.tta)


def _measures_nothing(cfg: Any) -> bool:
    """Whether the metrics of a test only write predictions."""
    given = cfg.get("test_evaluator")
    metrics = given if isinstance(given, list | tuple) else [given]
    return all(isinstance(one, Mapping) and one.get("format_only") for one in metrics)


def _checkpoint_file(path: Path) -> Path:
    """The file to test: ``path`` itself, or the newest whole checkpoint of a work folder."""
    if path.is_file():
        return path
    if path.is_dir():
        from polaformer.checkpoint.io import newest_valid

        newest, broken = newest_valid(path)
        if newest is None:
            why = "; ".join(f"{bad.name}: {reason}" for bad, reason in broken)
            raise UserError(f"{path} holds no whole checkpoint{': ' + why if why else ''}")
        return newest
    raise UserError(f"checkpoint {path} does not exist. {_nearest_checkpoint(path)}".rstrip())


def _nearest_checkpoint(path: Path) -> str:
    """A question naming the file or folder that may be meant, of ``path`` or of one above it."""
    if not path.parent.is_dir():  # relative paths end at '.', which is there
        return _nearest_checkpoint(path.parent)
    files = path.parent.glob(f"*{path.suffix or '.pth'}")
    names = {entry.stem: entry.name for entry in files}
    names |= {entry.name: entry.name for entry in path.parent.iterdir() if entry.is_dir()}
    # A suffix in common does not make names alike.
    match = nearest(path.stem if path.suffix == ".pth" else path.name, names)
    return f"did you mean '{names[match]}'?" if match else ""


def _keep_test_parts(cfg: Any) -> None:
    """Take out what only training needs."""
    for key in ("train", "val"):
        cfg[f"{key}_dataloader"] = cfg[f"{key}_cfg"] = None
    for key in ("optim_wrapper", "param_scheduler", "auto_scale_lr", "val_evaluator"):
        cfg[key] = None
    cfg["default_hooks"] = {**(cfg.get("default_hooks") or {}), "checkpoint": None}
    # A checkpoint's weights are the averaged ones already where there was averaging.
    training_only = ("EMAHook", "EarlyStoppingHook")
    hooks = cfg.get("custom_hooks") or []
    cfg["custom_hooks"] = [h for h in hooks if not str(h.get("type")).endswith(training_only)]


def _choose_number_format(cfg: Any, configured: str | None, path: Path, asked: bool) -> str:
    """Let the test compute as the training validated, unless told otherwise; says what it does.

    ``configured`` is the half type of the config's training, ``asked`` whether it is the user's
    wish. A ``test_cfg.amp`` other than 'auto' wins, then that wish, then the checkpoint.
    """
    from polaformer.checkpoint.io import read_checkpoint
    from polaformer.engine.loops import training_amp

    loop = cfg.get("test_cfg")
    if isinstance(loop, dict) and loop.get("amp", "auto") != "auto":
        return f"number format: {loop['amp'] or 'fp32'}, from test_cfg.amp"
    amp, source = configured, "--amp" if asked else "the config"
    meta = {} if asked else read_checkpoint(path).get("meta")
    trained = meta.get("config") if isinstance(meta, Mapping) else None
    if isinstance(trained, Mapping):
        validated = (trained.get("val_cfg") or {}).get("amp", "auto")
        amp = training_amp(trained) if validated == "auto" else validated
        source = f"the run that wrote {path.name} (--amp or test_cfg.amp change it)"
    if amp and isinstance(loop, dict):
        loop["amp"] = amp
    return f"number format: {amp or 'fp32'}, as in {source}"


def _take_tta_pipeline(cfg: Any, options: TestOptions) -> None:
    """Let the test data go through ``tta_pipeline`` instead of their own."""
    absent = [key for key in ("tta_model", "tta_pipeline") if not cfg.get(key)]
    if absent:
        raise UserError(
            f"--tta: {options.config} has no {' and no '.join(absent)}; test-time augmentation "
            "needs both, and the recipes of configs/detection and configs/segmentation have them"
        )
    for dataset in _innermost(cfg["test_dataloader"]["dataset"]):
        dataset["pipeline"] = cfg["tta_pipeline"]


def _innermost(dataset: Any) -> Iterator[Any]:
    """The data sets that read files, inside of wrappers such as RepeatDataset, ConcatDataset."""
    inner = dataset.get("datasets") or [dataset.get("dataset")]
    wrapped = [one for one in inner if isinstance(one, dict)]
    for one in wrapped:
        yield from _innermost(one)
    if not wrapped:
        yield dataset


def _wrap_before_test(runner: Any, tta_model: Mapping[str, Any]) -> None:
    """Put ``tta_model`` around the model once the checkpoint has been loaded into it."""
    from mmengine.hooks import PrepareTTAHook

    runner.register_hook(PrepareTTAHook(dict(tta_model)))


def choose_device(name: str) -> str:
    """'cpu' or 'cuda' for this process, and tell mmengine."""
    if name not in DEVICES:
        raise UserError(
            f"--device {name}: expected one of {', '.join(DEVICES)}. {did_you_mean(name, DEVICES)}"
        )
    import torch

    from polaformer.compat.runtime import use_device

    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("--device cuda: torch sees no CUDA device here; use --device cpu")
    chosen = "cuda" if available and name != "cpu" else "cpu"
    use_device(chosen)
    return chosen


def _load(options: Options, work_dir: str | Path | None, resume: str | Path | None = None) -> Any:
    from polaformer.config.load import load_config

    return load_config(
        options.config,
        options.cfg_options,
        work_dir=work_dir,
        amp=options.amp,
        seed=options.seed,
        deterministic=options.deterministic,
        resume=resume,
    )


def _check(cfg: Any, options: Options) -> None:
    """Raise UserError with every problem of the config, its data and its weight files."""
    from polaformer.config.check import check_config

    with _warnings_left_to_the_run():
        problems = check_config(cfg, sizes=False).problems
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise UserError(f"{options.config} cannot run:\n{listed}")


@contextmanager
def _warnings_left_to_the_run() -> Iterator[None]:
    """The check builds what the run builds again, with the same warnings, and then in its log."""
    from mmengine.logging import MMLogger

    logger = MMLogger.get_current_instance()

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)


def _add_trackers(cfg: Any, names: Sequence[str]) -> None:
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"unknown tracker '{name}'; allowed: {', '.join(TRACKERS)}")
        visualizer = dict(cfg.get("visualizer") or {"type": "polaformer.Visualizer"})
        backends = list(visualizer.get("vis_backends") or ())
        if not any(backend.get("type") == TRACKERS[name] for backend in backends):
            backends.append({"type": TRACKERS[name]})
        cfg["visualizer"] = {**visualizer, "vis_backends": backends}


def _build_runner(cfg: Any, device: str) -> Any:
    from polaformer.compat.versions import advice
    from polaformer.registry import RUNNERS

    if (cfg.get("randomness") or {}).get("deterministic"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        cfg["launcher"] = "pytorch"
        backend = "nccl" if device == "cuda" else "gloo"
        env = dict(cfg.get("env_cfg") or {})
        env["dist_cfg"] = {**(env.get("dist_cfg") or {}), "backend": backend}
        cfg["env_cfg"] = env
    cfg.setdefault("runner_type", "polaformer.Runner")
    _make_work_dir(Path(cfg["work_dir"]))
    runner = RUNNERS.build(cfg)
    for sentence in advice():
        runner.logger.warning(sentence)
    return runner


def _make_work_dir(folder: Path) -> None:
    """Make the work folder and try to write in it, before anything is opened there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"cannot write to the work folder {folder}: {error.strerror}. Name another one with "
            "--work-dir"
        ) from error


def _note_end(runner: Any, error: BaseException) -> None:
    """Close the progress bar and the run card of a run that did not end by itself."""
    from polaformer.engine.hooks import ProgressHook, RunCardHook

    for hook in runner.hooks:
        if isinstance(hook, ProgressHook):
            hook.close(runner.logger)
        if isinstance(hook, RunCardHook) and hasattr(hook, "card"):
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            reason = str(error) or type(error).__name__
            hook.card.finish(status, reason, epoch=runner.epoch, iteration=runner.iter)
    runner.visualizer.close()


def _report(
    runner: Any, metrics: Mapping[str, Any], checkpoint: Path, tta: bool = False
) -> dict[str, Any]:
    """The metrics with what else they know of this test, shown and written."""
    from mmengine.dist import is_main_process

    from polaformer.engine.hooks.logger import numbers
    from polaformer.engine.report import print_table
    from polaformer.engine.run_card import describe_data, strict, write_json

    content: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "config": runner.cfg.filename,
        "metrics": numbers(dict(metrics)),
        **({"tta": True} if tta else {}),
    }
    dataset = runner.test_dataloader.dataset
    dataset = getattr(dataset, "dataset", dataset)
    for metric in runner.test_evaluator.metrics:
        last = getattr(metric, "last", None) or {}
        content.update({key: value for key, value in last.items() if key != "predictions"})
    if is_main_process():
        folder = Path(runner.work_dir)
        content["data"] = describe_data(dataset)
        print_table(content)
        written = [
            path for m in runner.test_evaluator.metrics for path in _write(m, folder, dataset)
        ]
        write_json(folder / "metrics.json", content)
        paths = [folder / "metrics.json", *written]
        names = ", ".join(f"{path.name}/" if path.is_dir() else path.name for path in paths)
        runner.logger.info(f"results are in {folder}: {names}")
    return strict(content)


def _write(metric: Any, folder: Path, dataset: Any) -> list[Path]:
    """Let a metric write its predictions, if it can; returns the files."""
    write = getattr(metric, "write_results", None)
    return [Path(path) for path in write(folder, dataset) or ()] if write is not None else []
