"""Write the pictures and the page report.html of one or more work directories.

A run that is still going on, or that broke, gets a page too: it says what is missing.
"""

from __future__ import annotations

import argparse
import sys

from polaformer.cli import USAGE_ERROR, Parser, run
from polaformer.errors import UserError


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="report.py", description=__doc__)
    parser.add_argument("work_dir", nargs="+", help="folder that tools/train.py has written")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Prints each page's path; returns 2 if one of the folders cannot be used."""
    args = parse_args(argv)
    from polaformer.visualization import write_report

    code = 0
    for work_dir in args.work_dir:
        try:
            print(write_report(work_dir))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = USAGE_ERROR
    return code


if __name__ == "__main__":
    run(main)
