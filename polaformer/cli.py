"""What the command-line tools share: arguments, and how a user's mistake is told.

Nothing heavy is imported before the arguments are parsed, so ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from polaformer.errors import UserError, did_you_mean

USAGE_ERROR = 2


class Parser(argparse.ArgumentParser):
    """An argument parser that names the nearest argument when one is unknown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but an unknown argument is answered with the nearest one."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return found

    def error(self, message: str) -> NoReturn:
        """Print the message, with the nearest of the choices, and exit with code 2."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice:
            hint = did_you_mean(choice[1], re.findall(r"[\w.-]+", choice[2]))
            message += f"; {hint}" if hint else ""
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _unknown(self, unknown: Sequence[str]) -> str:
        options = _option_strings(self)
        flags = [word for word in unknown if word.startswith("-")]
        if not flags:
            return f"unexpected argument{'s' if len(unknown) > 1 else ''}: {' '.join(unknown)}"
        parts = []
        for flag in flags:
            hint = did_you_mean(flag.partition("=")[0], options)
            parts.append(f"unknown argument {flag}{'; ' + hint if hint else ''}")
        return "; ".join(parts)


def _option_strings(parser: argparse.ArgumentParser) -> list[str]:
    """All options of a parser and of its subcommands."""
    found: list[str] = []
    for action in parser._actions:
        found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += _option_strings(command)
    return found


def folder(text: str) -> str:
    """The type of an argument that names a folder, which need not exist yet."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path of a folder is empty (. is the current one)")
    if os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"{text} is a file, not a folder")
    return text


def add_config(parser: argparse.ArgumentParser, **kwargs: Any) -> None:
    """The config path."""
    parser.add_argument("config", help="a config file (.py)", **kwargs)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """``--cfg-options``."""
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change config values: train_cfg.max_epochs=5 param_scheduler.0.end=2",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """``--device`` and ``--amp``."""
    parser.add_argument(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="auto takes CUDA where there is one",
    )
    parser.add_argument("--amp", choices=["bf16", "fp16"], help="half type for the forward pass")


def run(main: Callable[[], Any]) -> NoReturn:
    """Run a tool: a UserError becomes one message on stderr and exit code 2, Ctrl-C code 130.

    ``main`` may return an exit code; None means 0.
    """
    try:
        code = main()
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        code = USAGE_ERROR
    except KeyboardInterrupt as error:
        sys.stderr.write(f"{str(error) or 'stopped by Ctrl-C'}\n")
        code = 130
    sys.exit(code or 0)
