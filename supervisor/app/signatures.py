"""`supervisorctl signatures`: the catalogue of log signatures, listed, explained, tried on a file, and checked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.model.errors import UsageError

if TYPE_CHECKING:
    from supervisor.diagnosis.catalogue import Catalogue, Signature

_EXAMPLE = """examples: supervisorctl signatures list --category nccl-timeout
          supervisorctl signatures test slurm-4711.out
          supervisorctl signatures explain nccl_watchdog_timeout
          supervisorctl signatures check my-pack.toml"""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add `signatures` to an argparse command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "signatures",
        help="the catalogue of log signatures",
        description="What the log diagnosis knows: listed, tried on a file, explained, and checked.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _arguments(parser)
    return parser


def _arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="signatures_command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="all entries in force", epilog="example: signatures list --role noise")
    listing.add_argument("--role", help="only entries of this role")
    listing.add_argument("--category", help="only entries of this category")
    trying = commands.add_parser(
        "test", help="which entries match which lines of a file", epilog="example: signatures test job.log"
    )
    trying.add_argument("file", help="a log; - is standard input")
    explaining = commands.add_parser(
        "explain", help="one entry whole", epilog="example: signatures explain disk_no_space"
    )
    explaining.add_argument("code", help="the entry's code")
    checking = commands.add_parser(
        "check",
        help="hold every entry against its own and all other examples",
        epilog="example: signatures check mine.toml",
    )
    checking.add_argument("packs", nargs="*", type=Path, metavar="PACK", help="report these packs only (default: all)")
    for command in (listing, trying, explaining):
        command.add_argument("--pack", action="append", default=[], type=Path, help="a pack of your own (repeatable)")
        command.add_argument("--json", action="store_true", help="JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Exit status: 0 done, 1 `check` found problems or `test` could not read the file, 2 wrong use or a broken pack."""
    from supervisor.diagnosis.catalogue import PackError

    commands = {"list": _list, "test": _test, "explain": _explain, "check": _check}
    try:
        return commands[options.signatures_command](options)
    except (UsageError, PackError) as error:
        print(f"supervisorctl: {error}", file=sys.stderr)
        return 2


def _list(options: argparse.Namespace) -> int:
    from supervisor.app import packs

    entries = [
        entry
        for entry in packs.catalogue(options.pack).signatures
        if options.role in (None, entry.role) and options.category in (None, entry.category)
    ]
    if options.json:
        rows = [
            {"code": entry.code, "pack": entry.pack, "role": entry.role, "category": entry.category, "why": entry.why}
            for entry in entries
        ]
        print(json.dumps({"schema_version": 1, "signatures": rows}))
        return 0
    for entry in entries:
        print(f"{entry.code:34}  {entry.role:9}  {entry.category or '-':22}  {entry.pack}")
    print(f"{len(entries)} entries")
    return 0


def _test(options: argparse.Namespace) -> int:
    from supervisor.app.diagnose import Source, read_source
    from supervisor.app.diagnose_view import exact, harmless
    from supervisor.app.packs import prepare

    prepared = prepare(options.pack)
    source = (
        Source("-", data=sys.stdin.buffer.read()) if options.file == "-" else Source(options.file, path=options.file)
    )
    reading = read_source(source, prepared)
    if reading.state == "unread":
        print(f"supervisorctl: {options.file}: {reading.reason}", file=sys.stderr)
        return 1
    if options.json:
        hits = [
            {"line": hit.line, "offset": hit.offset, "code": hit.code, "also": list(hit.also), "text": exact(hit.text)}
            for hit in reading.hits
        ]
        counts = [{"code": code, "count": count} for code, count, _first, _last in reading.counts]
        print(json.dumps({"schema_version": 1, "hits": hits, "counts": counts}))
        return 0
    for hit in reading.hits:
        quoted = f"  [{hit.quoted}]" if hit.quoted else ""
        print(f"{hit.line:>8}  {hit.code:32}  {harmless(hit.text, 140)}{quoted}")
    for code, count, first, last in sorted(reading.counts, key=lambda row: -row[1]):
        print(f"{count:>8}  {code}, lines {first} to {last}")
    return 0


def _explain(options: argparse.Namespace) -> int:
    from supervisor.app import packs

    known = packs.catalogue(options.pack)
    entry = known.by_code.get(options.code)
    if entry is None:
        near = [code for code in known.by_code if options.code in code][:8]
        hint = f"; near: {', '.join(near)}" if near else " (see `signatures list`)"
        raise UsageError(f"no signature is called {options.code!r}{hint}")
    rows = _explained(entry)
    if options.json:
        print(json.dumps({"schema_version": 1, "signature": rows}))
        return 0
    for key, value in rows.items():
        if value not in (None, "", [], {}):
            lines = value if isinstance(value, list) else [str(value)]
            print(f"{key:10}  {lines[0]}")
            for line in lines[1:]:
                print(f"{'':10}  {line}")
    return 0


def _explained(entry: Signature) -> dict[str, Any]:
    return {
        "code": entry.code,
        "pack": entry.pack,
        "role": entry.role,
        "category": entry.category,
        "depth": entry.depth if entry.role == "cause" else None,
        "confidence": entry.confidence,
        "transience": entry.transience if entry.category else None,
        "pattern": entry.pattern.text,
        "frame": entry.frame,
        "where": [f"{test.group} {test.relation} {test.bound:g}" for test in entry.where],
        "with": sorted(entry.with_),
        "unless": sorted(entry.unless),
        "healed_by": sorted(entry.healed_by),
        "explains": sorted(entry.explains),
        "window": entry.window or None,
        "survives": entry.survives or None,
        "why": entry.why,
        "action": entry.action,
        "source": entry.source,
        "matches": list(entry.matches),
        "spares": list(entry.spares),
    }


def _check(options: argparse.Namespace) -> int:
    from supervisor.app import packs
    from supervisor.diagnosis.examples import check

    ours = {name for name, _ in packs.shipped()}
    own = [path for path in options.packs if path.name not in ours]
    whole: Catalogue = packs.catalogue(own, strict=True)
    named = {path.name for path in options.packs} | {str(path) for path in options.packs}
    problems = [problem for problem in check(whole) if not named or problem.pack in named]
    for problem in problems:
        kind = "cross-talk" if problem.is_crosstalk else "wrong"
        print(f"{problem.pack}: {problem.code}: {kind}: {problem.text}")
    count = sum(1 for entry in whole.signatures if not named or entry.pack in named)
    print(f"{count} entries checked, {len(problems)} problems")
    return 1 if problems else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m supervisor.app.signatures COMMAND`."""
    parser = argparse.ArgumentParser(prog="signatures", description=__doc__)
    _arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
