"""Where in the script each tensor is made, and what it is called there."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .grouping import Group, Tree
from .model import Call, Tensor, Unknown
from .model import Sequence as Items

__all__ = ["Path", "Place", "Plan", "identifier", "steps_of", "used_by"]

RESERVED = frozenset(("np", "aclnn_py", "data", "Path", "bfloat16", "print", "range", "complex"))
Path: TypeAlias = "tuple[tuple[int, int], ...]"  # groups and iterations, outermost first


@dataclass
class Place:
    """Where a tensor is made: before which step, in which iterations of which groups."""

    path: Path
    step: int
    last: int


class Plan:
    """Places and names of all tensors.

    A tensor that several iterations use is made before their loop; a name is used again where nobody needs the old
    tensor any more.
    """

    def __init__(self, program_steps: Sequence[Any], trees: tuple[Tree, ...]) -> None:
        self.places: dict[int, Place] = {}
        self.tensors: dict[int, Tensor] = {}
        self.names: dict[int, str] = {}
        self.taken = set(RESERVED)
        paths: dict[int, Path] = {}
        spans: dict[int, tuple[int, int]] = {}

        def walk(nodes: tuple[Tree, ...], path: Path) -> list[int]:
            seen: list[int] = []
            for node in nodes:
                if isinstance(node, Group):
                    inner = [s for k, part in enumerate(node.iterations) for s in walk(part, (*path, (id(node), k)))]
                    spans[id(node)] = (min(inner), max(inner))
                    seen += inner
                else:
                    paths[node] = path
                    seen.append(node)
            return seen

        walk(trees, ())
        for number, step in enumerate(program_steps):
            for tensor in used_by(step):
                place = self.places.get(id(tensor))
                self.tensors[id(tensor)] = tensor
                if place is None:
                    self.places[id(tensor)] = Place(paths[number], number, number)
                    continue
                place.last = number
                common = 0
                here = paths[number]
                while common < min(len(here), len(place.path)) and here[common] == place.path[common]:
                    common += 1
                if common < len(place.path):
                    first, _ = spans[place.path[common][0]]
                    place.path, place.step = place.path[:common], first
        for place in self.places.values():  # it lives to the end of the group of its last use
            for group, _ in paths[place.last][len(place.path) :][:1]:
                place.last = spans[group][1]
        self._name()

    def _name(self) -> None:
        held: dict[str, list[Place]] = {}
        for key, place in sorted(self.places.items(), key=lambda row: row[1].step):
            base = identifier(self.tensors[key].name)
            if place.path:  # numbered by whoever has no iterations
                base = re.sub(r"_\d+$", "", base)
            name, count = base, 2
            while any(not (other.last < place.step or place.last < other.step) for other in held.get(name, ())):
                name, count = f"{base}_{count}", count + 1
            held.setdefault(name, []).append(place)
            self.names[key] = name
        self.taken.update(held)


def steps_of(node: Tree) -> list[int]:
    """Return the numbers of the steps of a node."""
    if isinstance(node, Group):
        return [step for part in node.iterations for inner in part for step in steps_of(inner)]
    return [node]


def used_by(step: Any) -> list[Tensor]:
    """Return the tensors of a step, each after the one whose memory it shares."""
    if isinstance(step, Call):
        values = [
            item
            for value in step.arguments.values()
            for item in (value.items if isinstance(value, Items) else (value,))
        ]
    else:
        values = [] if isinstance(step, Unknown) else [step.tensor]
    found: list[Tensor] = []
    for value in values:
        chain: list[Tensor] = []
        while isinstance(value, Tensor):
            chain.insert(0, value)
            value = value.base
        found += chain
    return found


def identifier(name: str) -> str:
    """Return a name that Python and the script can use."""
    name = re.sub(r"\W+", "_", name).strip("_") or "x"
    name = f"x{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name in RESERVED or name.startswith("float8") else name
