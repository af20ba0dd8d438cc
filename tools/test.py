"""Test a checkpoint: prints a table, writes metrics.json and the predictions.

python tools/test.py CONFIG work_dirs/NAME/best_top1_epoch_30.pth
python tools/test.py CONFIG work_dirs/NAME                        its newest checkpoint
python tools/test.py CONFIG work_dirs/NAME --tta                  several sizes, mirrored too
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from polaformer import cli
from polaformer.errors import UserError


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = cli.Parser(description=__doc__)
    cli.add_config(parser)
    parser.add_argument(
        "checkpoint", help="a weight file (.pth, .safetensors), or a work folder: its newest one"
    )
    parser.add_argument(
        "--work-dir",
        type=cli.folder,
        metavar="DIR",
        help="results (default: beside the checkpoint)",
    )
    parser.add_argument("--out", metavar="FILE", help="write the metrics there too")
    parser.add_argument(
        "--tta",
        action="store_true",
        help="test-time augmentation, as the config's tta_model and tta_pipeline say (slow)",
    )
    cli.add_device(parser)
    cli.add_overrides(parser)
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    from polaformer.engine.launch import TestOptions, test

    out = Path(args.out) if args.out else None
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"--out {out}: give a file in a folder that exists")
    metrics = test(
        TestOptions(
            config=args.config,
            checkpoint=args.checkpoint,
            tta=args.tta,
            work_dir=args.work_dir,
            amp=args.amp,
            device=args.device,
            cfg_options=args.cfg_options,
        )
    )
    if out is not None:
        out.write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cli.run(main)
