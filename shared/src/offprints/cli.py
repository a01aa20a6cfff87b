"""The `offprints` command: errors in one line, exit status 0, 1 (a verdict is worse or fails) or 2 (usage)."""

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a sign shows "?" and stays alive
            stream.reconfigure(errors="replace")
    try:
        from offprints import commands
    except ModuleNotFoundError as error:
        dist = next((word for word in arguments[1:] if not word.startswith("-")), "offprints")
        print(f'offprints needs {error.name} for this: pip install "{dist}[repro]"', file=sys.stderr)
        return 2
    try:
        return commands.dispatch(arguments)
    except KeyboardInterrupt:
        print("offprints: stopped; finished runs are kept and a rerun continues from them.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone; finished runs are kept
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except commands.EXPECTED as error:
        print(f"offprints: {error}", file=sys.stderr)
        return 2


def script() -> None:
    """Entry point of the console script."""
    sys.exit(main())
