"""Write the pictures and report.html of one or more work directories.

A run that is still going on, or that broke, gets a page too: it says what is missing.
"""

from __future__ import annotations

import argparse
import sys


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__)
    parser.add_argument("work_dir", nargs="+", help="folder that tools/train.py has written")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    from polaformer.errors import UserError
    from polaformer.visualization import write_report

    code = 0
    for work_dir in args.work_dir:
        try:
            print(write_report(work_dir))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main())
