"""Train a model as a config says.

  python tools/train.py configs/classification/pola-pvt-nano_digits.py
  python tools/train.py CONFIG --resume
  torchrun --nproc-per-node 8 tools/train.py CONFIG --amp bf16

Everything in the config is checked before any data are read.
"""

from __future__ import annotations

import argparse

from polaformer import cli


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = cli.Parser(description=__doc__)
    cli.add_config(parser)
    parser.add_argument(
        "--work-dir", type=cli.folder, metavar="DIR", help="results (default: work_dirs/<config>)"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="FILE",
        help="continue from FILE, or from the newest whole checkpoint in the work folder",
    )
    cli.add_device(parser)
    parser.add_argument("--seed", type=int, help="overrides randomness.seed")
    parser.add_argument(
        "--deterministic", action="store_true", help="deterministic operations only (slower)"
    )
    parser.add_argument(
        "--tracker",
        action="append",
        default=[],
        choices=["wandb", "tensorboard"],
        help="log there too; may be given twice",
    )
    parser.add_argument("--dry-run", action="store_true", help="check, show the plan, and stop")
    cli.add_overrides(parser)
    return parser.parse_args(argv)


def main() -> int | None:
    args = parse_args()
    if args.dry_run:
        from polaformer.config.report import show_plans

        presets = {"work_dir": args.work_dir, "amp": args.amp, "seed": args.seed}
        return show_plans([args.config], args.cfg_options, presets=presets, require_data=True)
    from polaformer.engine.launch import TrainOptions, train

    train(
        TrainOptions(
            config=args.config,
            work_dir=args.work_dir,
            resume=args.resume,
            amp=args.amp,
            seed=args.seed,
            deterministic=args.deterministic,
            device=args.device,
            cfg_options=args.cfg_options,
            trackers=args.tracker,
        )
    )
    return None


if __name__ == "__main__":
    cli.run(main)
