"""Where scalars go: ``scalars.json`` always, TensorBoard and Weights & Biases when switched on.

A tracker never stops a run: a missing package, a missing network or a full disk at the other end
gives one warning, and the run goes on without it.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import time
from collections.abc import Sequence
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from mmengine.dist import is_main_process
from mmengine.logging import MMLogger
from mmengine.utils import ManagerMixin

from polaformer.engine.run_card import strict, write_json
from polaformer.registry import VISBACKENDS, VISUALIZERS

SCALARS = "scalars.json"
WANDB_SECONDS = 10
"""How long wandb may look for its server (it adds some 10 s); its own limit is 90 s."""


class Tracker:
    """One destination of scalars. A failure switches it off with a single warning."""

    name = "tracker"

    def __init__(self, save_dir: str) -> None:
        self.save_dir = save_dir
        self.on = True
        self.config: dict[str, Any] = {}

    def begin(self, iteration: int) -> None:
        """Make ready for a run that continues after ``iteration``."""
        self._guarded(self._begin, iteration)

    def log(self, scalars: dict[str, float], step: int) -> None:
        """Send scalars of ``step`` (iterations done)."""
        self._guarded(self._log, scalars, step)

    def close(self) -> None:
        """Finish what is open."""
        self._guarded(self._close)

    def _guarded(self, call: Any, *args: Any) -> None:
        if not self.on:
            return
        try:
            call(*args)
        except Exception as error:  # whatever a tracker does, the run goes on
            self.on = False
            MMLogger.get_current_instance().warning(
                f"{self.name} is switched off for this run: {type(error).__name__}: {error}"
            )

    def _begin(self, iteration: int) -> None:
        """Nothing to prepare by default."""

    def _log(self, scalars: dict[str, float], step: int) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Nothing to close by default."""


@VISBACKENDS.register_module()
class LocalBackend(Tracker):
    """``scalars.json``: one JSON object per line, with ``step``, ``iter`` and ``epoch``."""

    name = "scalars.json"

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir)
        self.path = Path(save_dir) / SCALARS

    def _begin(self, iteration: int) -> None:
        """Drop lines after ``iteration`` of a resumed run; set those of another run aside."""
        if not self.path.exists():
            return
        if iteration == 0:
            stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(self.path.stat().st_mtime))
            os.replace(self.path, self.path.with_name(f"scalars_{stamp}.json"))
            return
        lines = self.path.read_text("utf-8").splitlines()
        kept = [line for line in lines if _upto(line, iteration)]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        os.replace(temporary, self.path)

    def _log(self, scalars: dict[str, float], step: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(strict({**scalars, "step": step}), allow_nan=False) + "\n")


def _upto(line: str, iteration: int) -> bool:
    try:
        return json.loads(line)["step"] <= iteration
    except (ValueError, KeyError, TypeError):
        return False


@VISBACKENDS.register_module()
class TensorboardBackend(Tracker):
    """TensorBoard event files in the folder ``tensorboard`` of the work folder."""

    name = "TensorBoard"

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir)
        self._writer: Any = None

    def _log(self, scalars: dict[str, float], step: int) -> None:
        if self._writer is None:
            module = importlib.import_module("torch.utils.tensorboard")
            self._writer = module.SummaryWriter(os.path.join(self.save_dir, "tensorboard"))
        for name, value in scalars.items():
            if name not in ("iter", "epoch", "step"):
                self._writer.add_scalar(name, value, step)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def has_wandb_key() -> bool:
    """Whether an API key is there: in the environment, or for wandb's server in the netrc file."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    server = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc(os.environ.get("NETRC")).authenticators(server) is not None
    except (OSError, NetrcParseError):
        return False


@VISBACKENDS.register_module()
class WandbBackend(Tracker):
    """Weights & Biases; one run across resumes, whose id is kept in ``wandb_run.json``.

    Args:
        project: of the run.
        name: of the run; the work folder's name by default.
        mode: 'online', 'offline' or 'disabled'; None follows WANDB_MODE, and without it goes
            online where there is an API key.
        init_kwargs: further arguments of ``wandb.init``.
    """

    name = "wandb"

    def __init__(
        self,
        save_dir: str,
        project: str = "polaformer",
        name: str | None = None,
        mode: str | None = None,
        init_kwargs: dict | None = None,
    ) -> None:
        super().__init__(save_dir)
        self.options = {
            "project": project,
            "name": name or os.path.basename(os.path.normpath(save_dir)),
            "mode": mode,
            **(init_kwargs or {}),
        }
        self._run: Any = None

    def _begin(self, iteration: int) -> None:
        """Connect now: waiting for the network is no time of the first step."""
        self._start()

    def _start(self) -> None:
        wandb = importlib.import_module("wandb")
        card = Path(self.save_dir) / "wandb_run.json"
        run_id = json.loads(card.read_text("utf-8"))["id"] if card.exists() else None
        options = {
            **self.options,
            "id": run_id or secrets.token_hex(4),
            "resume": "allow",
            "dir": self.save_dir,
            "config": self.config,
            "settings": {"init_timeout": WANDB_SECONDS, **(self.options.get("settings") or {})},
        }
        if options["mode"] is None and "WANDB_MODE" not in os.environ and not has_wandb_key():
            # On a terminal wandb would ask for an account and wait for ever.
            options["mode"] = "offline"
            MMLogger.get_current_instance().warning(
                "wandb has no API key and writes offline; `wandb login`, `wandb sync` upload later"
            )
        try:
            self._run = wandb.init(**options)
        except Exception as error:
            if options["mode"] == "offline":
                raise
            MMLogger.get_current_instance().warning(
                f"wandb cannot go online ({type(error).__name__}: {error}); it continues offline"
            )
            wandb.teardown()  # the failed start would still hold the id
            self._run = wandb.init(**{**options, "mode": "offline"})
        write_json(card, {"id": options["id"], "project": options["project"]})

    def _log(self, scalars: dict[str, float], step: int) -> None:
        if self._run is None:
            self._start()
        self._run.log(scalars, step=step)

    def _close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


@VISUALIZERS.register_module()
class Visualizer(ManagerMixin):
    """The trackers of a run behind the interface that mmengine's runner expects.

    It draws nothing and needs neither OpenCV nor matplotlib.

    Args:
        vis_backends: configs such as ``dict(type='polaformer.WandbBackend')``; ``scalars.json`` is
            always written.
        save_dir: the work folder.
    """

    def __init__(
        self,
        name: str = "visualizer",
        vis_backends: Sequence[dict] | None = None,
        save_dir: str = ".",
    ) -> None:
        super().__init__(name)
        self.dataset_meta: dict | None = None
        self.trackers: list[Tracker] = [LocalBackend(save_dir)]
        for config in vis_backends or ():
            kind = str(config.get("type", "")).rsplit(".", 1)[-1]
            if kind not in ("LocalBackend", "LocalVisBackend"):
                self.trackers.append(VISBACKENDS.build({**config, "save_dir": save_dir}))

    def begin(self, iteration: int) -> None:
        """Make the trackers ready for a run that continues after ``iteration``."""
        if is_main_process():
            for tracker in self.trackers:
                tracker.begin(iteration)

    def add_config(self, config: Any) -> None:
        """Give the trackers the config of the run."""
        for tracker in self.trackers:
            tracker.config = config.to_dict()

    def add_scalar(self, name: str, value: float, step: int = 0) -> None:
        """Send one scalar."""
        self.add_scalars({name: value}, step)

    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None
    ) -> None:
        """Send scalars of ``step``; ``file_path`` is mmengine's and not used."""
        if not is_main_process():
            return
        values = {key: _number(value) for key, value in scalar_dict.items()}
        for tracker in self.trackers:
            tracker.log(values, step)

    def close(self) -> None:
        """Close the trackers."""
        for tracker in self.trackers:
            tracker.close()


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
