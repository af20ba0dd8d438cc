"""Check configs without training: all problems at once, then the plan of the run.

  python tools/check.py configs/classification/*.py
  python tools/check.py CONFIG --processes 8 --cfg-options train_dataloader.batch_size=64
  python tools/check.py CONFIG --explain optim_wrapper.clip_grad.max_norm

Exit code 0 if every config is sound, 1 if there are problems, 2 for a wrong command line. Data that
are not on this machine are told but are no problem, unless --require-data is given.
"""

from __future__ import annotations

import argparse

from polaformer import cli


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = cli.Parser(description=__doc__)
    cli.add_config(parser, nargs="+")
    parser.add_argument("--processes", type=int, metavar="N", help="plan for N training processes")
    parser.add_argument(
        "--require-data", action="store_true", help="missing data or weight files are a problem"
    )
    parser.add_argument("--json", action="store_true", help="print the plans as JSON")
    parser.add_argument("--explain", metavar="KEY", help="print which file and line set KEY")
    cli.add_overrides(parser)
    args = parser.parse_args(argv)
    if args.processes is not None and args.processes < 1:
        parser.error(f"--processes {args.processes}: expected 1 or more")
    if args.explain is not None and not args.explain.strip():
        parser.error("--explain needs a key such as optim_wrapper.optimizer.lr")
    if args.explain and args.json:
        parser.error("--json and --explain cannot be given together")
    return args


def main() -> int:
    args = parse_args()
    from polaformer.config.report import explain_key, show_plans

    if args.explain:
        return max(explain_key(path, args.explain, args.cfg_options) for path in args.config)
    return show_plans(
        args.config,
        args.cfg_options,
        as_json=args.json,
        require_data=args.require_data,
        processes=args.processes,
    )


if __name__ == "__main__":
    cli.run(main)
