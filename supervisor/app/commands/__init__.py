"""``supervisorctl``'s commands, one module each: ``add_parser(subparsers)`` and ``run(args) -> exit code``.

A module's head imports nothing heavy: what a command needs is loaded when it runs.
"""
