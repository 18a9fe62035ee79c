"""The command line: ``aclnn-py`` and ``python -m aclnn_py``."""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import os
import platform
import shlex
import sys
from collections.abc import Sequence

import numpy as np

from . import __version__, backends, demo, emulator, errors, library, signatures
from .reference import OPERATORS

__all__ = ["main"]

VARIABLES = (
    "ASCEND_HOME_PATH",
    "ASCEND_OPP_PATH",
    "ASCEND_CUSTOM_OPP_PATH",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ACLNN_PY_BACKEND",
    "ACLNN_PY_LAUNCH_BLOCKING",
    "ACLNN_PY_LIBRARY_PATH",
    "ACLNN_PY_PRODUCT",
)


def _rows(title: str, rows: Sequence[tuple[str, object]]) -> None:
    print(title)
    width = max((len(label) for label, _ in rows), default=0)
    for label, value in rows:
        print(f"  {label:<{width}}  {value}")


def _installed(module: str) -> str:
    return "installed" if importlib.util.find_spec(module) else "not installed"


def _info(options: argparse.Namespace) -> int:
    report = library.discover()
    _rows(
        f"aclnn-py {__version__}",
        [
            ("python", f"{platform.python_version()} on {platform.machine()}"),
            ("numpy", np.__version__),
            *((name, _installed(name)) for name in ("torch", "torch_npu")),
        ],
    )
    emulated = sorted(name for name in os.environ if name.startswith("ACLNN_EMULATOR_"))
    _rows("environment", [(name, os.environ.get(name, "(not set)")) for name in (*VARIABLES, *emulated)])
    rows: list[tuple[str, object]] = [("root", f"{place.path}  ({place.via})") for place in report.roots]
    rows += [("library", f"{place.path}  ({place.via})") for place in report.libraries]
    rows += [
        ("version", report.version or "unknown"),
        ("driver", f"{report.driver or 'not found'} {report.driver_version}".rstrip()),
        ("devices", ", ".join(report.devices) or "none"),
    ]
    if report.usable:
        rows += backends.probe()
    _rows("CANN" + (" (the emulator)" if report.emulator else ""), rows)
    if options.verbose or (report.tried and not report.usable):
        _rows("looked at", report.tried)
    built = emulator.library_path()
    _rows(
        "backends",
        [
            ("reference", "ready (NumPy, any host)"),
            ("emulator", built or "not built: aclnn-py emulator build"),
            ("npu", "ready" if report.usable else "missing: " + "; ".join(what for what, _ in report.missing)),
            ("auto would use", backends.auto_name()),
        ],
    )
    if report.usable:
        steps = ["aclnn-py demo --backend npu"]
    else:
        steps = [f"for an NPU: {step}" for step in dict.fromkeys(step for _, step in report.missing)]
        steps.append("without an NPU: aclnn-py demo --backend reference")
        if importlib.util.find_spec("torch_npu"):
            steps.append("torch_npu is installed but CANN is not: set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to import torch")
    print("next")
    for step in steps:
        print(f"  {step}")
    return 0


def _demo(options: argparse.Namespace) -> int:
    return demo.run(backends.get_backend(options.backend))


def _ops(options: argparse.Namespace) -> int:
    pattern = options.pattern if any(c in options.pattern for c in "*?[") else f"*{options.pattern}*"
    known = signatures.known()
    names = sorted(name for name in known if fnmatch.fnmatch(name.lower(), pattern.lower()))
    for name in names:
        reference = "reference" if name in OPERATORS else ""
        print(f"{name:<40} {len(known[name].parameters):>2} parameters  {known[name].header:<18} {reference}".rstrip())
    if not names:
        print(f"no operator matches {options.pattern!r}", file=sys.stderr)
    return 0 if names else 1


def _show(options: argparse.Namespace) -> int:
    signature = signatures.find(options.operator)
    if signature is None:
        close = [name for name in signatures.known() if options.operator.lower() in name.lower()]
        hint = f"; did you mean {', '.join(sorted(close))}?" if close else "; aclnn-py ops lists the known ones"
        print(f"no operator {options.operator!r}{hint}", file=sys.stderr)
        return 1
    print(f"{signature.name}  ({signature.header})")
    width = max(len(parameter.name) for parameter in signature.parameters)
    for parameter in signature.parameters:
        notes = ["output"] if parameter.name in signature.outputs else []
        notes += ["may be None"] if parameter.optional and parameter.ctype.endswith("*") else []
        print(f"  {parameter.name:<{width}}  {parameter.ctype:<20} {', '.join(notes)}".rstrip())
    print("\nwith aclnn_py.Executor(")
    print(f'    "{signature.name}",')
    for parameter in signature.parameters:
        value = "None" if parameter.optional and parameter.ctype.endswith("*") else "..."
        print(f"    {parameter.name}={value},  # {parameter.ctype}")
    print(") as ex:\n    ex.run()")
    return 0


def _emulator(options: argparse.Namespace) -> int:
    if options.action == "build":
        print(emulator.build(force=options.force, verbose=options.verbose))
        return 0
    if options.action == "env":
        for name, value in emulator.environment().items():
            print(f"export {name}={shlex.quote(value)};")
        return 0
    path = emulator.include_path() if options.include else emulator.library_path()
    if path is None:
        print("the emulator is not built: aclnn-py emulator build", file=sys.stderr)
        return 1
    print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aclnn-py", description="CANN aclnn operators from Python.")
    parser.add_argument("--version", action="version", version=f"aclnn-py {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="what was found where, and what to do next")
    info.add_argument("--verbose", action="store_true", help="also list every place that was looked at")
    info.set_defaults(run=_info)

    show_demo = commands.add_parser("demo", help="run both main operators on the public samples and check them")
    show_demo.add_argument("--backend", default="auto", choices=("auto", *backends.NAMES))
    show_demo.set_defaults(run=_demo)

    ops = commands.add_parser("ops", help="list the operators whose signature is at hand")
    ops.add_argument("pattern", nargs="?", default="*", help="glob or part of a name")
    ops.set_defaults(run=_ops)

    show = commands.add_parser("show", help="show an operator's parameters and a call to edit")
    show.add_argument("operator", help="aclnnMoeFinalizeRoutingV2Grad, for example")
    show.set_defaults(run=_show)

    emu = commands.add_parser("emulator", help="build or locate the CPU emulator of CANN's libraries")
    actions = emu.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser("build", help="build it (CMake and a C++17 compiler needed)")
    build.add_argument("--force", action="store_true", help="build again")
    build.add_argument("--verbose", action="store_true", help="show the compiler's output")
    path = actions.add_parser("path", help="print the directory of its libraries")
    path.add_argument("--include", action="store_true", help="print the include directory instead")
    actions.add_parser("env", help="print shell exports, for eval")
    emu.set_defaults(run=_emulator)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Examples
    --------
    >>> main(["ops", "UnpermuteWithEpGrad"])
    aclnnMoeTokenUnpermuteWithEpGrad         10 parameters  cdefs/ops/moe.h    reference
    0
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (errors.AclnnError, FileNotFoundError, RuntimeError) as error:
        print(f"aclnn-py {options.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
