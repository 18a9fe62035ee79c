"""What a file or class declares: functions, classes, enums, aliases, and variables with their initialisers."""

from __future__ import annotations

from typing import Any

from .convert import array_of, convert, copy_in, default
from .functions import parameters_of, reference
from .machine import FunctionDef, Machine, Scope, StructDef, executes
from .syntax import Node, fragment
from .types import AUTO, CType, numeric
from .values import NULL, Array, Braces, Cell, Closure, Handle, Num, Pair, Ptr, Struct, Text, Unk, Vector

__all__ = ["collect", "declare_all", "initialise", "members"]


def function_of(node: Node, templates: list[str]) -> FunctionDef | None:
    """Return the function that a definition or prototype declares."""
    declarator = node.get("declarator")
    inner = declarator
    while inner is not None and inner.kind not in ("function_declarator", "operator_cast"):
        inner = inner.get("declarator") or next((k for k in inner.kids if k.kind.endswith("declarator")), None)
    if inner is None:
        return None
    parameters = inner.get("parameters")
    if inner.kind == "operator_cast":
        name = "operator " + inner["type"].text
        found: list[Node] = []
    else:
        name_node = inner["declarator"]
        if name_node.kind in ("parenthesized_declarator", "pointer_declarator"):
            return None
        name = name_node.text.replace(" ", "") if name_node.kind == "operator_name" else name_node.text
        found = parameters_of(parameters) if parameters is not None else []
    initialisers = next((k for k in node.kids if k.kind == "field_initializer_list"), None)
    return FunctionDef(
        name, node, node.get("body"), found, node.get("type"), list(templates), None, initialisers, declarator
    )


def collect(m: Machine, root: Node) -> None:
    """Declare everything at file level, variables after types and functions have been seen in order."""
    for node in root.kids:
        _top(m, node, [])


def _top(m: Machine, node: Node, templates: list[str]) -> None:
    kind = node.kind
    if kind == "template_declaration":
        names = []
        for p in node["parameters"].kids if "parameters" in node.fields else []:
            name = p.get("name") or p.get("declarator") or (p.kids[-1] if p.kids else None)
            names.append(name.text.strip(". ") if name is not None else "")
        for kid in node.kids[1:]:
            _top(m, kid, names)
    elif kind == "function_definition":
        _add_function(m, node, templates)
    elif kind in ("namespace_definition", "linkage_specification", "declaration_list"):
        body = node.get("body") or node
        for kid in body.kids:
            if kid.kind not in ("namespace_identifier", "identifier", "string_literal"):
                _top(m, kid, [])
    elif kind in ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier"):
        define_type(m, node, templates)
    elif kind == "alias_declaration" and templates:
        outer, m.scope = m.scope, Scope(m.scope)
        m.scope.add_type(templates[0], CType("T0"))
        aliased = m.type(node["type"])
        m.scope = outer
        m.scope.add_type(node["name"].text + "<>", aliased)
    elif kind.startswith("preproc_if"):
        for kid in branch(m, node):
            _top(m, kid, templates)
    elif kind == "declaration":
        if "declarator" in node.fields and _is_prototype(node["declarator"]):
            return
        m.exec(node)
    elif kind in ("alias_declaration", "type_definition", "expression_statement"):
        m.exec(node)


def _is_prototype(declarator: Node) -> bool:
    while declarator.kind in ("pointer_declarator", "reference_declarator"):
        inner = declarator.get("declarator") or (declarator.kids[-1] if declarator.kids else None)
        if inner is None:
            return False
        declarator = inner
    return declarator.kind == "function_declarator" and declarator["declarator"].kind in (
        "identifier",
        "qualified_identifier",
    )


def _add_function(m: Machine, node: Node, templates: list[str]) -> None:
    definition = function_of(node, templates)
    if definition is None:
        return
    if "::" in definition.name:
        owner, _, definition.name = definition.name.rpartition("::")
        owner, name = owner.split("<")[0].split("::")[-1], definition.name
        if owner in m.structs:
            slot = m.structs[owner].methods.setdefault(name, [])
            slot[:] = [d for d in slot if d.body is not None or len(d.parameters) != len(definition.parameters)]
            slot.append(definition)
            return
    if "<" in definition.name:  # a specialisation
        m.extra.setdefault("specialised", set()).add(definition.name.split("<")[0].strip())
    m.functions.setdefault(definition.name, []).append(definition)


def define_type(m: Machine, node: Node, templates: list[str]) -> None:
    """Declare a struct, class, union or enum."""
    if node.kind == "enum_specifier":
        _enum(m, node)
        return
    body, name_node = node.get("body"), node.get("name")
    if body is None:
        return
    name = name_node.text if name_node is not None else f"anonymous@{node.start}"
    definition = StructDef(name, m.scope, node.kind == "union_specifier", templates=list(templates))
    for bases in (k for k in node.kids if k.kind == "base_class_clause"):
        definition.bases = [k.text for k in bases.kids if k.kind in ("type_identifier", "qualified_identifier")]
    m.structs[name] = definition
    for kid in body.kids:
        inner, names = kid, []
        if kid.kind == "template_declaration":
            names = [p.kids[-1].text for p in kid["parameters"].kids if p.kids]
            inner = kid.kids[-1]
        if inner.kind in ("function_definition", "declaration") or (
            inner.kind == "field_declaration" and "declarator" in inner.fields and function_of(inner, []) is not None
        ):
            method = function_of(inner, names)
            if method is not None and not method.name.startswith("~"):
                definition.methods.setdefault(method.name, []).append(method)
        elif inner.kind == "field_declaration":
            type_node = inner.get("type")
            if type_node is not None and "body" in type_node.fields:
                define_type(m, type_node, [])
            for declarator in inner.all("declarator"):
                target = declarator
                while target.kind not in ("field_identifier", "identifier") and target.kids:
                    target = target.get("declarator") or target.kids[-1]
                definition.members.append((target.text, inner, declarator))
            if not inner.all("declarator") and type_node is not None and "body" in type_node.fields:
                definition.members.append(("", inner, inner))  # an anonymous union: its members are ours
        elif inner.kind in ("alias_declaration", "type_definition", "enum_specifier", "struct_specifier"):
            m.exec(inner)
            if "<" in name and inner.kind == "alias_declaration":  # which specialisation is meant is not followed
                m.scope.add_type(inner["name"].text, CType("specialised"))


def members(m: Machine, definition: StructDef, made: Struct) -> None:
    """Give a new object its members, with their default initialisers."""
    for base in definition.bases:
        if base in m.structs:
            members(m, m.structs[base], made)
    for name, node, declarator in definition.members:
        if not name:
            inner = m.extra["construct"](m, m.type(node["type"]), [])
            if isinstance(inner, Struct):
                for key in inner.fields:
                    made.fields[key] = Shared(inner, key) if inner.union else inner.fields[key]
            continue
        ctype, _, extents = m.declared(node.get("type"), declarator)
        initial = node.get("default_value")
        made.fields[name] = _variable(m, name, ctype, extents, initial, node)


class Shared(Cell):
    """A member of an anonymous union."""

    __slots__ = ("key", "owner")

    def __init__(self, owner: Struct, key: str) -> None:
        super().__init__(None, owner.fields[key].ctype, key)
        self.owner, self.key = owner, key

    @property
    def value(self) -> Any:
        """The member's value."""
        from .places import UnionCell

        return UnionCell(self.owner, self.key).get()

    @value.setter
    def value(self, new: Any) -> None:
        if new is not None:
            self.owner.fields[self.key].value = new
            self.owner.last = self.key

    def get(self, _index: Any = 0) -> Any:
        """Return the member's value."""
        return self.value

    def set(self, _index: Any, value: Any) -> None:
        """Write the member."""
        self.value = value


def initialise(m: Machine, node: Node, this: Struct | None) -> None:
    """Run a constructor's member initialisers."""
    for item in node.kids:
        if item.kind != "field_initializer" or this is None or len(item.kids) < 2:
            continue
        name = item.kids[0].text
        cell = this.fields.get(name)
        values = [m.eval(k) for k in item.kids[1].kids]
        if cell is not None:
            if cell.ctype.ref and len(item.kids[1].kids) == 1:
                place = m.lvalue(item.kids[1].kids[0])
                if place is not None:
                    this.fields[name] = reference(place)
                    continue
            cell.set(0, m.extra["construct"](m, cell.ctype.bare(), values))


def _enum(m: Machine, node: Node) -> None:
    name = node.get("name")
    base = m.type(node["base"]) if "base" in node.fields else CType("int32")
    if name is not None:
        m.scope.add_type(name.text, base)
    following = 0
    body = node.get("body")
    for item in body.kids if body is not None else []:
        if item.kind != "enumerator":
            continue
        given = m.eval(item["value"]) if "value" in item.fields else Num(following)
        value = int(given.v) if isinstance(given, Num) else following
        following = value + 1
        m.scope.vars[item["name"].text] = Cell(Num(value), CType("int32"), item["name"].text)


def branch(m: Machine, node: Node) -> list[Node]:
    """Return the children of a preprocessor conditional that count."""
    alternative = node.get("alternative")
    condition = node.get("condition") or node.get("name")
    if node.kind == "preproc_else":
        return node.kids
    text = condition.text if condition is not None else "0"
    if node.kind == "preproc_ifdef":
        directive = node.source.bytes[node.start : node.start + 12].decode(errors="replace")
        guard = any(k.kind == "preproc_def" and k["name"].text == text for k in node.kids)
        chosen = guard or (text in m.macros) != ("ifndef" in directive)
    elif "__has_include" in text:
        chosen = True
    elif "defined" in text:
        chosen = any(word in m.macros for word in text.replace("(", " ").replace(")", " ").split()) != ("!" in text)
    else:
        chosen = text.strip().isdigit() and int(text) != 0
    skip = (condition, alternative)
    if chosen:
        return [k for k in node.kids if k not in skip]
    return branch(m, alternative) if alternative is not None else []


# variables


@executes("declaration", "condition_declaration", "field_declaration")
def declare_all(m: Machine, node: Node) -> Any:
    """Declare the variables of a declaration."""
    type_node = node.get("type")
    if type_node is not None and "body" in type_node.fields:
        define_type(m, type_node, [])
    if "static" in node.text[:40].split("(")[0].split() and m.scope is not m.globals:
        first = node.all("declarator")
        if node.cache is not None and first:
            m.scope.vars.update(node.cache)
            return None
    before = dict(m.scope.vars)
    declarators = node.all("declarator")
    if "value" in node.fields and len(declarators) == 1 and declarators[0].kind != "init_declarator":
        _declare(m, type_node, declarators[0], node["value"], node)
        return None
    for declarator in declarators:
        if declarator.kind == "init_declarator":
            _declare(m, type_node, declarator["declarator"], declarator.get("value"), node)
        else:
            _declare(m, type_node, declarator, None, node)
    if " static" in " " + node.text[:8]:
        node.cache = {k: v for k, v in m.scope.vars.items() if before.get(k) is not v}
    return None


def _declare(m: Machine, type_node: Node | None, declarator: Node, value: Node | None, node: Node) -> None:
    if declarator.kind == "structured_binding_declarator" or any(
        k.kind == "structured_binding_declarator" for k in declarator.kids
    ):
        binding = declarator if declarator.kind.startswith("structured") else declarator.kids[-1]
        got = m.eval(value) if value is not None else None
        bind_structure(m, binding, got)
        return
    if declarator.kind == "function_declarator" and m.scope is not m.globals:
        if _constructor_call(m, type_node, declarator, node):
            return
        return
    ctype, name_node, extents = m.declared(type_node, declarator)
    if name_node is None or ctype.base == "function":
        if name_node is not None and value is not None:
            m.declare_variable(name_node.text, m.eval(value), CType("function"))
        return
    name = name_node.text
    m.scope.vars[name] = _variable(m, name, ctype, extents, value, node)


def bind_structure(m: Machine, binding: Node, value: Any) -> None:
    """Declare the names of ``auto [a, b] = pair;``."""
    names = [k.text for k in binding.kids if k.kind == "identifier"]
    if isinstance(value, Pair):
        cells = value.cells
    elif isinstance(value, Struct):
        cells = list(value.fields.values())
    elif isinstance(value, (Vector, Array)):
        array = value.array if isinstance(value, Vector) else value
        cells = [Cell(array.get(i), array.elem) for i in range(array.n)]
    else:
        cells = [Cell(value if isinstance(value, Unk) else m.unk("a structured binding", binding), AUTO) for _ in names]
    for name, cell in zip(names, cells, strict=False):
        m.scope.vars[name] = Cell(cell.value, cell.ctype, name)


def _constructor_call(m: Machine, type_node: Node | None, declarator: Node, node: Node) -> bool:
    """``T name(a, b);`` in a function reads like a prototype; it is a constructor call when it is not one."""
    parameters = declarator["parameters"]
    name = declarator["declarator"]
    if declarator.cache is None:
        text = parameters.text.strip()
        body = fragment(f"f{text}", node.line, m.file)
        calls = [n for n in body.walk() if n.kind == "call_expression"]
        declarator.cache = calls[0] if calls else False
    if not declarator.cache or name.kind != "identifier":
        return False
    ctype = m.declared(type_node, None)[0]
    arguments = declarator.cache.get("arguments")
    if arguments is None or (not arguments.kids and ctype.base not in m.structs):
        return False
    values = [m.eval(k) for k in arguments.kids]
    m.declare_variable(name.text, m.extra["construct"](m, ctype, values), ctype)
    return True


def _variable(m: Machine, name: str, ctype: CType, extents: list[Any], value: Node | None, node: Node) -> Cell:
    if extents:
        return Cell(_array(m, name, ctype, extents, value, node), CType("carray", (ctype,)), name)
    if value is None:
        made = default(m, ctype)
        if m.scope is m.globals and isinstance(made, Unk):
            made = default(m, ctype, True)
        cell = Cell(made, ctype, name)
    elif ctype.ref:
        place = m.lvalue(value)
        bare = ctype.bare()
        if place is not None and (bare.base == "auto" or not numeric(bare) or numeric(bare) == numeric(place[0].ctype)):
            return reference(place)
        got = m.eval(value)
        cell = Cell(convert(m, got, bare), bare, name)
    elif value.kind == "argument_list":
        values = [m.eval(k) for k in value.kids]
        cell = Cell(m.extra["construct"](m, ctype, values), ctype, name)
    elif value.kind == "initializer_list":
        got = m.eval(value)
        if ctype.base in m.structs and not ctype.ptr:
            cell = Cell(m.extra["construct"](m, ctype, got.items, True), ctype, name)
        elif not got.items:
            cell = Cell(default(m, ctype, True), ctype, name)
        elif ctype.base in ("unique_ptr", "shared_ptr", "thread", "string") or (
            ctype.base == "auto" and len(got.items) == 1
        ):
            cell = Cell(m.extra["construct"](m, ctype, got.items), ctype, name)
        else:
            cell = Cell(copy_in(m, got, ctype), ctype, name)
    else:
        got = m.eval(value)
        if isinstance(got, Closure) and got.name == "lambda":
            got.name = name
        cell = Cell(copy_in(m, got, ctype), ctype, name)
    settled = cell.value
    if ctype.base == "auto" and not ctype.ptr and isinstance(settled, Num):
        cell.ctype = CType(settled.t)
    if isinstance(settled, Vector) and not settled.array.name:
        settled.array.name = name
    if isinstance(settled, Handle):
        settled.data.setdefault("name", name)
    return cell


def _array(m: Machine, name: str, ctype: CType, extents: list[Any], value: Node | None, node: Node) -> Any:
    sizes: list[int | None] = []
    for extent in extents:
        size = m.eval(extent) if extent is not None else None
        if size is not None and not isinstance(size, Num):
            return m.unk("an array of unknown length", node)
        sizes.append(int(size.v) if isinstance(size, Num) else None)
    got = m.eval(value) if value is not None else None
    if isinstance(got, Text):
        array = Array(ctype, sizes[0] if sizes[0] is not None else len(got.value.encode()) + 1)
        for i, byte in enumerate(got.value.encode()[: array.n]):
            array.data[i] = byte - 256 if byte > 127 else byte
    elif isinstance(got, Braces):
        array = array_of(m, got, ctype, sizes)
    elif isinstance(got, (Unk, Ptr)):
        return got
    else:
        array = _empty(m, ctype, sizes)
    array.name = name
    return array


def _empty(m: Machine, ctype: CType, sizes: list[int | None]) -> Array:
    if len(sizes) > 1:
        outer = Array(CType("carray", (ctype,)), sizes[0] or 0)
        outer.data = [_empty(m, ctype, sizes[1:]) for _ in range(outer.n)]
        return outer
    array = Array(ctype, sizes[0] or 0)
    if array.is_numeric:
        if m.scope is not m.globals:
            array.forget(Unk("an array that was not initialised", m.line))
    else:
        array.data = [NULL if ctype.ptr and m.scope is m.globals else default(m, ctype) for _ in range(array.n)]
    return array
