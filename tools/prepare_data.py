"""Make data (digits: real handwriting from scikit-learn) or check it (imagenet, folder)."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from polaformer.errors import UserError, did_you_mean

_EXAMPLES = """examples:
  python tools/prepare_data.py digits                    write data/digits (1,797 real digits)
  python tools/prepare_data.py imagenet --check          look at data/imagenet
  python tools/prepare_data.py folder --check my/images  look at your own class folders or archive
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the nearest valid word."""

    def error(self, message: str) -> NoReturn:
        hint = ""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            hint = did_you_mean(match[1], re.findall(r"[\w-]+", match[2]))
        elif match := re.search(r"unrecognized arguments: (--[\w-]+)", message):
            options = [option for name in COMMANDS for option in _options(name)]
            hint = did_you_mean(match[1], options)
        self.exit(2, f"{self.prog}: error: {message}{'; ' + hint if hint else ''} (see --help)\n")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="prepare_data.py",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="{digits,imagenet,folder}"
    )
    for name, (text, fill) in COMMANDS.items():
        fill(commands.add_parser(name, help=text, description=text, allow_abbrev=False))
    return parser


def _digits_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="data/digits", help="folder to make (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the split (%(default)s)")
    parser.add_argument(
        "--val-fraction", type=float, default=0.2, help="share of each class (%(default)s)"
    )
    parser.add_argument("--size", type=int, default=32, help="pixels per side; 8 is native (32)")
    parser.add_argument(
        "--force", action="store_true", help="replace what this command made before"
    )


def _imagenet_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        nargs="?",
        const="data/imagenet",
        metavar="ROOT",
        required=True,
        help="the folder with train and val (data/imagenet)",
    )
    _files_option(parser, "header")


def _folder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", metavar="ROOT", required=True, help="class folders, or train and val with them"
    )
    _files_option(parser, "decode")


def _files_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--files",
        choices=("decode", "header", "none"),
        default=default,
        help="how closely each image is looked at (%(default)s)",
    )


COMMANDS = {
    "digits": ("write scikit-learn's handwritten digits as class folders", _digits_options),
    "imagenet": ("check the layout, classes and files of ImageNet-1K", _imagenet_options),
    "folder": ("check your own class folders, tar or zip", _folder_options),
}


def _options(command: str) -> list[str]:
    probe = argparse.ArgumentParser(add_help=False)
    COMMANDS[command][1](probe)
    return list(probe._option_string_actions)


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 1 if a check found problems, or 2 for a mistake in the command."""
    args = _build_parser().parse_args(argv)
    try:
        return _run(args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    if args.command == "digits":
        from polaformer.datasets.prepare.digits import prepare_digits

        folder, reused = prepare_digits(
            args.out, args.seed, args.val_fraction, args.size, args.force
        )
        print(f"{folder}: {'already there, complete and unchanged' if reused else 'written'}")
        return 0
    from polaformer.datasets.prepare.check import check_folder, check_imagenet

    check = check_imagenet if args.command == "imagenet" else check_folder
    report = check(args.check, args.files)
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
