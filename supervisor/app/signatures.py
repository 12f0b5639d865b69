"""`supervisorctl signatures`: the catalogue of log signatures, looked at and checked. Needs no daemon and no config."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.model.errors import UsageError

if TYPE_CHECKING:
    from supervisor.diagnosis.catalogue import Catalogue, Signature
    from supervisor.model.diagnosis import FileReading


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "signatures",
        help="the catalogue of log signatures",
        description="The catalogue of log signatures: what is known, what matches in a log, what an entry means, and whether"
        " packs are right.",
        epilog="example: supervisorctl signatures test slurm-4711.out",
    )
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="every entry: code, role, category, pack")
    listed.add_argument("--json", action="store_true")
    test = actions.add_parser("test", help="every line of a log that an entry matches")
    test.add_argument("file", metavar="FILE", help="file, .gz or .zst; - is standard input")
    test.add_argument("--json", action="store_true")
    explain = actions.add_parser("explain", help="one entry whole: what it means and what to do")
    explain.add_argument("code", metavar="CODE")
    check = actions.add_parser("check", help="hold every entry against its own and all other examples")
    check.add_argument("packs", nargs="*", type=Path, metavar="PACK", help="only these, together with the shipped ones")
    for action in (listed, test, explain):
        action.add_argument(
            "--pack", action="append", default=[], type=Path, help="a signature pack of your own (repeatable)"
        )


def run(args: argparse.Namespace) -> int:
    from supervisor.app import packs
    from supervisor.diagnosis.catalogue import PackError

    if args.action == "check":
        return run_check(args.packs)
    try:
        if args.action == "test":
            return _test(args)
        catalogue = packs.catalogue(own=args.pack)
    except PackError as error:
        raise UsageError(f"signatures: {error}") from error
    return _list(catalogue, args.json) if args.action == "list" else _explain(catalogue, args.code)


def _list(catalogue: Catalogue, as_json: bool) -> int:
    if as_json:
        from supervisor.app.asking import print_json

        rows = [
            {"code": each.code, "role": each.role, "category": each.category, "pack": each.pack, "why": each.why}
            for each in catalogue.signatures
        ]
        print_json({"signatures": rows})
        return 0
    wide = max((len(each.code) for each in catalogue.signatures), default=0)
    for each in catalogue.signatures:
        print(f"{each.code:<{wide}}  {each.role:<9} {each.category or '—':<22} {Path(each.pack).name}")
    print(f"{len(catalogue.signatures)} entries; `supervisorctl signatures explain CODE` says more of one")
    return 0


def _explain(catalogue: Catalogue, code: str) -> int:
    entry = catalogue.by_code.get(code)
    if entry is None:
        import difflib

        close = difflib.get_close_matches(code, catalogue.by_code, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; `supervisorctl signatures list` lists all"
        raise UsageError(f"signatures: no signature is called {code!r}{hint}")
    print(f"{entry.code}  ({entry.role}, {Path(entry.pack).name})\n")
    for name, value in _facts(entry):
        print(textwrap.fill(value, 116, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15))
    print("  matches")
    for example in entry.matches:
        print(textwrap.indent(example, "    "))
    if entry.spares:
        print("  spares")
        for example in entry.spares:
            print(textwrap.indent(example, "    "))
    return 0


def _facts(entry: Signature) -> Iterator[tuple[str, str]]:
    cause = entry.role == "cause"
    yield from (
        (name, str(value))
        for name, value in (
            ("category", entry.category),
            ("confidence", entry.confidence if entry.category else None),
            ("transience", entry.transience if entry.category else None),
            ("depth", entry.depth if cause else None),
            ("means", entry.why),
            ("to do", entry.action),
            ("pattern", entry.pattern.text),
            ("counts with", ", ".join(sorted(entry.with_))),
            ("not beside", ", ".join(sorted(entry.unless))),
            ("printed by", entry.source),
        )
        if value
    )


def _test(args: argparse.Namespace) -> int:
    """Exit status 0: something matched; 1: nothing; 2: it could not be read."""
    from supervisor.app.diagnose import _standard_input, find_sources, read_source
    from supervisor.app.packs import prepare

    prepared = prepare(args.pack)
    found = []
    for source in find_sources([args.file]):
        reading = _standard_input(prepared) if source.path == "-" else read_source(source, prepared)
        if reading.state != "read":
            print(f"supervisorctl: signatures: {reading.path}: {reading.state}: {reading.reason}", file=sys.stderr)
        found.append(reading)
    roles = {entry.code: entry.role for entry in prepared.catalogue.signatures}
    if args.json:
        from supervisor.app.asking import print_json

        print_json({"files": [_as_document(reading, roles) for reading in found]})
    else:
        for reading in found:
            _print(reading, roles)
    if all(reading.state in ("unread", "binary") for reading in found):
        return 2
    return 0 if any(reading.hits or reading.counts for reading in found) else 1


def _print(reading: FileReading, roles: dict[str, str]) -> None:
    from supervisor.reports.text import plain

    for hit in reading.hits:
        role = roles.get(hit.code, "exception")
        text = plain(hit.text.decode("utf-8", "surrogateescape").rstrip())
        print(f"{plain(reading.path)}:{hit.line}: {hit.code} ({role}): {text[:300]}")
    hits = {hit.code for hit in reading.hits}
    for code, count, first, last in reading.counts:
        if code not in hits:
            print(f"{plain(reading.path)}:{first}-{last}: {code} ({roles.get(code, '?')}): {count} lines")
    if not reading.hits and not reading.counts:
        print(f"{plain(reading.path)}: nothing matches in {reading.lines} lines")


def _as_document(reading: FileReading, roles: dict[str, str]) -> dict[str, Any]:
    return {
        "path": reading.path,
        "state": reading.state,
        "reason": reading.reason,
        "lines": reading.lines,
        "hits": [
            {
                "line": hit.line,
                "code": hit.code,
                "role": roles.get(hit.code),
                "text": hit.text.decode("utf-8", "backslashreplace").rstrip(),
            }
            for hit in reading.hits
        ],
        "counts": [
            {"code": code, "count": count, "first_line": first, "last_line": last}
            for code, count, first, last in reading.counts
        ],
    }


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
