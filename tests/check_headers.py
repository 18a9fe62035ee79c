"""Check the declarations of cdefs/ and the status codes against CANN headers this project did not write.

    python tests/check_headers.py                  downloads a torch_npu wheel and reads the headers inside
    python tests/check_headers.py --include DIR    reads DIR/acl/acl.h and what else DIR has

The compiler is the judge: each prototype is declared a second time after the headers, each number is a
static_assert. Exit status 1 on a mismatch, or when there was nothing to compare. Nothing is installed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from aclnn_py._status import PAIRS

CDEFS = Path(__file__).resolve().parent.parent / "cdefs"
WHEEL = "torch_npu==2.13.0"
# the wheel must not depend on the Python that runs this script
PIP_TARGET = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311",
              "--platform=manylinux_2_28_x86_64"]  # fmt: skip
# the second two belong to libnnopbase: a CANN installation has them, the wheel does not
HEADERS = ["acl/acl.h", "acl/acl_rt.h", "aclnn/aclnn_base.h", "aclnn/acl_meta.h"]


class Report(NamedTuple):
    """What was compared: names found in the headers and names they do not have, by kind."""

    checked: dict[str, list[str]]
    absent: dict[str, list[str]]
    errors: str

    @property
    def ok(self) -> bool:
        return not self.errors and any(self.checked.values())


def plain(path: Path) -> str:
    """Return the declarations of one of our headers without comments, preprocessor lines and C++ guards."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def prototypes(path: Path) -> dict[str, str]:
    """Return function name -> prototype."""
    found = {}
    for statement in plain(path).split(";"):
        if match := re.search(r"\b(\w+)\s*\(", statement):
            found[match[1]] = " ".join(statement.split()) + ";"
    return found


def type_assertions(path: Path) -> dict[str, str]:
    """Return type or enumerator name -> the assertion about it; opaque handles have none."""
    found = {}
    text = plain(path)
    for ctype, name in re.findall(r"^typedef (\w+ \**)(\w+);", text, re.MULTILINE):
        found[name] = f'static_assert(std::is_same<{name}, {ctype}>::value, "{name} is {ctype.strip()}");'
    for kind, body, name in re.findall(r"typedef (enum|struct) \w+ \{(.*?)\} (\w+);", text, re.DOTALL):
        if kind == "enum":
            found[name] = f'static_assert(sizeof({name}) == 4, "{name} has 4 bytes");'
            for key, value in re.findall(r"(\w+) = (-?\d+)", body):
                found[key] = f'static_assert({key} == {value}, "{key} is {value} in cdefs/{path.name}");'
        else:
            fields = re.findall(r"char (\w+)\[(\d+)\];", body)
            sizes = [f"sizeof({name}::{field}) == {size}" for field, size in fields]
            sizes.append(f"sizeof({name}) == {sum(int(size) for _, size in fields)}")
            found[name] = f'static_assert({" && ".join(sizes)}, "layout of {name}");'
    return found


def status_assertions() -> dict[str, str]:
    """Return status macro -> assertion; one that moved between releases may have any of its numbers."""
    numbers = defaultdict(list)
    for code, name in PAIRS:
        numbers[name].append(code)
    return {
        name: f'static_assert({" || ".join(f"{name} == {code}" for code in codes)}, "{name} is {codes}");'
        for name, codes in numbers.items()
    }


def compile_cpp(source: str, include: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = ["g++", "-std=c++17", "-w", "-fmax-errors=0", *flags, f"-I{include}", f"-I{include / 'acl'}"]
    return subprocess.run([*command, "-x", "c++", "-"], input=source, capture_output=True, text=True, check=False)


def check(include: Path, cdefs: Path = CDEFS) -> Report:
    """Compare everything that the headers under ``include`` name too."""
    headers = [header for header in HEADERS if (include / header).is_file()]
    source = "".join(f'#include "{header}"\n' for header in headers)
    expanded = compile_cpp(source, include, "-E", "-P", "-dD")
    if expanded.returncode:
        return Report({}, {}, expanded.stderr)
    names = set(re.findall(r"\w+", expanded.stdout))
    functions = set(re.findall(r"(\w+)\s*\(", expanded.stdout))

    ours = {
        "prototypes": (prototypes(cdefs / "base.h"), functions),
        "types and enum values": (type_assertions(cdefs / "types.h"), names),
        "status codes": (status_assertions(), names),
    }
    checked = {kind: [name for name in mine if name in theirs] for kind, (mine, theirs) in ours.items()}
    absent = {kind: [name for name in mine if name not in theirs] for kind, (mine, theirs) in ours.items()}

    source += "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <type_traits>\n"
    for kind, (mine, _) in ours.items():
        lines = "\n".join(mine[name] for name in checked[kind])
        source += f'extern "C" {{\n{lines}\n}}\n' if kind == "prototypes" else f"{lines}\n"
    compiled = compile_cpp(source, include, "-fsyntax-only")
    return Report(checked, absent, compiled.stderr if compiled.returncode else "")


def download(directory: Path) -> Path:
    """Fetch the wheel and unpack its C headers; return their include directory."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", *PIP_TARGET, WHEEL]
    subprocess.run([*command, "--dest", str(directory)], check=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith("torch_npu/include/acl/")]
        archive.extractall(directory, members)
    return directory / "torch_npu" / "include"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--include", type=Path, metavar="DIR", help="directory that has acl/acl.h")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        report = check(options.include or download(Path(scratch)))
    for kind, names in report.checked.items():
        print(f"{kind}: {len(names)} checked, {len(report.absent[kind])} not in these headers")
    if report.errors:
        print(report.errors, file=sys.stderr)
    elif not report.ok:
        print(f"nothing to compare: no name of ours in {' '.join(HEADERS)}, if present", file=sys.stderr)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
