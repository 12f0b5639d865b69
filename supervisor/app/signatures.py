"""`supervisorctl signatures`: the catalogue of log signatures, looked at and checked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from supervisor.model.errors import UsageError


def run_check(paths: list[Path]) -> int:
    """Every entry against its own examples and all others'. 0 if all is right, 1 with one line a problem otherwise."""
    from supervisor.app import packs
    from supervisor.diagnosis.catalogue import PackError
    from supervisor.diagnosis.examples import check

    try:
        shipped = {str(Path(path).name) for path in paths if "data/signatures" in path.resolve().as_posix()}
        catalogue = packs.catalogue(own=[path for path in paths if path.name not in shipped], strict=True)
    except PackError as error:
        print(f"signatures: {error}", file=sys.stderr)
        return 2
    named = {path.name for path in paths} | {str(path) for path in paths}
    problems = [problem for problem in check(catalogue) if not named or problem.pack in named]
    for problem in problems:
        kind = "cross-talk" if problem.is_crosstalk else "wrong"
        print(f"{problem.pack}: {problem.code}: {kind}: {problem.text}")
    count = sum(1 for signature in catalogue.signatures if not named or signature.pack in named)
    print(f"{count} entries checked, {len(problems)} problems")
    return 1 if problems else 0


def main(arguments: list[str] | None = None) -> int:
    """`python -m supervisor.app.signatures check [PACK…]`."""
    parser = argparse.ArgumentParser(prog="signatures", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="hold every entry against its own and all other examples")
    check.add_argument("packs", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    try:
        return run_check(options.packs)
    except UsageError as error:
        print(f"signatures: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
