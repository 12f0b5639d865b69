"""``supervisorctl rules``: what is in force."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "rules",
        help="thresholds in force, each with its rule and reason; signature packs loaded",
        description="Thresholds in force, each with its rule and its reason, and the signature packs loaded.",
        epilog="example: supervisorctl rules --json",
    )
    made.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    from supervisor.app import packs
    from supervisor.app.asking import print_json
    from supervisor.app.limits import limits_in_force, limits_table
    from supervisor.app.settings import load
    from supervisor.model.errors import UsageError

    try:
        settings, path = load(args.config)
        given, own, off = settings.limits, settings.signatures.packs, settings.signatures.off
        source = str(path)
    except UsageError as error:
        if args.config or "no config file" not in str(error):
            raise
        given, own, off, source = {}, (), (), "built-in defaults (no config file)"
    force, table = limits_in_force(given), limits_table()
    catalogue = packs.catalogue(own=own, off=off)
    counts: dict[str, int] = {}
    for signature in catalogue.signatures:
        counts[signature.pack] = counts.get(signature.pack, 0) + 1
    if args.json:
        limits = {
            name: {
                "value": force[""][name],
                "unit": entry["unit"],
                "rule": entry["rule"],
                "why": entry["why"],
                "buckets": {b: v[name] for b, v in force.items() if b and v[name] != force[""][name]},
            }
            for name, entry in table.items()
        }
        print_json({"config": source, "limits": limits, "packs": counts})
        return 0
    print(f"thresholds in force ({source}):\n")
    for name, entry in table.items():
        own_values = ", ".join(f"{b} {v[name]:g}" for b, v in force.items() if b and v[name] != force[""][name])
        print(
            f"  {entry['rule']:<8} {name} = {force[''][name]:g} {entry['unit']}{'  (' + own_values + ')' if own_values else ''}"
        )
        print(f"           {entry['why']}")
    print(f"\nsignature packs: {sum(counts.values())} entries")
    for pack, count in sorted(counts.items()):
        print(f"  {count:>4}  {pack}")
    return 0
