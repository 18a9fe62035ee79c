"""The command line: ``aclnn-py`` and ``python -m aclnn_py``."""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import keyword
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import __version__, backends, catalog, demo, emulator, errors, library, signatures, stubs
from .headers import HeaderIndex, include_directories
from .port import command as port_command

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


def _npu(report: library.Report) -> str:
    if report.emulator:
        return "ACLNN_PY_LIBRARY_PATH names the emulator instead"
    return "ready" if report.usable else "missing: " + "; ".join(what for what, _ in report.missing)


def _auto() -> str:
    name = os.environ.get("ACLNN_PY_BACKEND") or "auto"
    if name == "auto":
        return backends.auto_name()
    return name if name in backends.NAMES else f"nothing: ACLNN_PY_BACKEND is {name!r}, not {', '.join(backends.NAMES)}"


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
            ("npu", _npu(report)),
            ("auto would use", _auto()),
        ],
    )
    if report.usable:
        steps = ["aclnn-py demo --backend " + ("emulator" if report.emulator else "npu")]
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


_LACKING = {
    "npu": "not here: another CANN release or product",
    "emulator": "not emulated: needs a device",
    "reference": "not in the reference",
}


def _ops(options: argparse.Namespace) -> int:
    backend = backends.get_backend(options.backend)
    known = backend.known()
    names = catalog.matching(options.pattern, known)
    for name in names:
        where = backend.where(name) if backend.has(name) else _LACKING[backend.name]
        print(f"{name:<40} {where:<30} {known[name]}")
    if note := backend.headers_note():
        print(note.removeprefix("; "), file=sys.stderr)
    for path, why in backend.broken_headers().items():
        print(f"cannot read {path}: {why}", file=sys.stderr)
    if not names:
        print(f"no operator matches {options.pattern!r}", file=sys.stderr)
    return 0 if names else 1


_PLACEHOLDERS = {
    "tensor": "np.ones((2, 3), np.float32)",
    "tensor_list": "[np.ones((2, 3), np.float32)]",
    "scalar": "1.0",
    "scalar_list": "[1.0]",
    "int_array": "[0]",
    "float_array": "[0.0]",
    "bool_array": "[False]",
    "string": '""',
    "bool": "False",
    "float": "1.0",
    "double": "1.0",
    "dtype": '"float32"',
}


def _show(options: argparse.Namespace) -> int:
    backend = backends.get_backend(options.backend)
    try:
        signature = backend.signature(options.operator)
    except errors.SymbolNotFoundError:
        names = {name.lower(): name for name in backend.known()}
        close = catalog.matching(options.operator, names.values())[:8] or [
            names[match] for match in difflib.get_close_matches(options.operator.lower(), names, 3, 0.8)
        ]
        hint = f"; did you mean {', '.join(close)}?" if close else "; aclnn-py ops lists the known ones"
        print(f"no operator {options.operator!r}{hint}", file=sys.stderr)
        return 1
    where = backend.where(signature.name) if backend.has(signature.name) else f"not in the {backend.name} backend"
    print(f"{signature.name}  (declared in {signature.header}; {where})")
    width = max((len(parameter.name) for parameter in signature.parameters), default=0)
    lines = []
    for parameter in signature.parameters:
        output = parameter.name in signature.outputs
        in_place = output and (parameter.name.endswith("Ref") or "Inplace" in signature.name)
        pointer = parameter.ctype.endswith("*")
        notes = ["output, changed in place"] if in_place else ["output"] if output else []
        notes += ["may be None"] if parameter.optional and pointer else []
        print(f"  {parameter.name:<{width}}  {parameter.ctype:<20} {', '.join(notes)}".rstrip())
        value = "None" if parameter.optional and pointer else _PLACEHOLDERS.get(parameter.kind, "0")
        if parameter.kind == "tensor" and re.search("(?i)ind(ex|ices)|idx", parameter.name) and value != "None":
            value = "np.zeros((2, 3), np.int32)"
        name = parameter.name
        lines.append(f'    **{{"{name}": {value}}},' if keyword.iskeyword(name) else f"    {name}={value},")
    print("\nimport numpy as np\nimport aclnn_py\n")
    print("\n".join([f'aclnn_py.op("{signature.name}")(', *lines, ")"]))
    return 0


def _stubs(options: argparse.Namespace) -> int:
    backend = backends.get_backend(options.backend)
    found = [backend.signature(name) for name in catalog.list_ops(backend=backend)]
    if options.output is None:
        print(stubs.render(found), end="")
    else:
        stubs.write(options.output, found)
        print(f"{len(found)} operators: {options.output.with_suffix('.py')} and its .pyi", file=sys.stderr)
    return 0


def _check(options: argparse.Namespace) -> int:
    """Compare the built-in declarations with the headers of an install."""
    directories = options.include or include_directories(
        [place.path for place in library.discover().libraries], [place.path for place in library.discover().roots]
    )
    index = HeaderIndex(directories)
    compared = different = 0
    for name, ours in sorted(signatures.known().items()):
        theirs = index.find(name)
        if theirs is None:
            continue
        compared += 1
        if [p.ctype for p in ours.parameters] != [p.ctype for p in theirs.parameters]:
            different += 1
            print(f"DIFFERENT {name}\n  ours:   {ours}\n  {theirs.header}:\n          {theirs}")
        elif ours.parameters != theirs.parameters:  # same ABI
            names = [(p.name, q.name) for p, q in zip(ours.parameters, theirs.parameters, strict=True) if p != q]
            print(f"renamed   {name}: " + ", ".join(f"{a} is {b} there" for a, b in names))
    for path, why in index.broken.items():
        print(f"cannot read {path}: {why}", file=sys.stderr)
    print(f"{compared} of {len(signatures.known())} declarations compared, {different} different")
    if not compared:
        print("no operator headers found: give --include DIR, or source CANN's set_env.sh", file=sys.stderr)
    return 1 if different or not compared else 0


def _bench(options: argparse.Namespace) -> int:
    from . import bench

    return bench.run(backends.get_backend(options.backend), quick=options.quick, file=options.json)


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

    timing = commands.add_parser("bench", help="time calls, and the main gradient beside a copy, on a backend")
    timing.add_argument("--backend", default="auto", choices=("auto", *backends.NAMES))
    timing.add_argument("--quick", action="store_true", help="few rounds, and only the calls")
    timing.add_argument("--json", metavar="FILE", help="also write the numbers there")
    timing.set_defaults(run=_bench)

    ops = commands.add_parser("ops", help="list the operators that a backend has, where each is, and its header")
    ops.add_argument("pattern", nargs="?", default="*", help="glob or part of a name")
    ops.add_argument("--backend", default="auto", choices=("auto", *backends.NAMES))
    ops.set_defaults(run=_ops)

    show = commands.add_parser("show", help="show an operator's parameters and a call to edit")
    show.add_argument("operator", help="aclnnMoeFinalizeRoutingV2Grad, for example")
    show.add_argument("--backend", default="auto", choices=("auto", *backends.NAMES))
    show.set_defaults(run=_show)

    stub = commands.add_parser("stubs", help="write typed stubs of every operator, for editors")
    stub.add_argument("-o", "--output", type=Path, help="write this module and its .pyi; default: the .pyi on stdout")
    stub.add_argument("--backend", default="auto", choices=("auto", *backends.NAMES))
    stub.set_defaults(run=_stubs)

    check = commands.add_parser("check", help="compare the built-in declarations with installed headers")
    check.add_argument("--include", type=Path, action="append", metavar="DIR", help="an include directory to use")
    check.set_defaults(run=_check)

    port_command.add(commands)

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
    >>> main(["ops", "UnpermuteWithEpGrad", "--backend", "reference"])
    aclnnMoeTokenUnpermuteWithEpGrad         NumPy reference                cdefs/ops/moe.h
    0
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except (errors.AclnnError, FileNotFoundError, RuntimeError, ValueError) as error:
        print(f"aclnn-py {options.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
