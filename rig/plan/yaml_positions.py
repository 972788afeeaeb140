"""Safe YAML reading that keeps the line and column of every value, for files that people write by hand.

Plain data only: text, integers, decimals, true/false, null, lists and mappings with text keys, by the YAML 1.2 core
schema (yaml.org/spec/1.2.2, 10.3). What YAML 1.1 readers would take for something else (`yes`, `010`, `12:30`) is a
fault instead of a surprise. Everything found is collected; nothing in a file, however hostile, raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import yaml

from rig.errors import Fault
from rig.plan.yaml_scalars import other_reading, resolve

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_VALUES = 50_000
"""Values after aliases are expanded: the bound that stops an alias bomb."""

Path = tuple[str | int, ...]


class Place(NamedTuple):
    """Where something begins in the file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """One file's data and where each piece of it stands. `data` is None when nothing could be read."""

    file: str
    data: Any
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    """Where the key of a mapping's entry stands; paths end with that key."""
    faults: tuple[Fault, ...] = ()

    def position(self, *path: str | int) -> tuple[int, int]:
        """(line, column) of the key of `path`, or of the item of a list; of the nearest parent if it is not there."""
        for length in range(len(path), -1, -1):
            place = self.keys.get(path[:length]) or self.values.get(path[:length])
            if place is not None:
                return place
        return (1, 1)

    def fault(self, path: Path, message: str, suggestion: str | None = None, *, at_key: bool = False) -> Fault:
        """A fault at the value of `path` (or its key); at the key of the nearest parent if it is not there."""
        place = None if at_key else self.values.get(path)
        line, column = place or self.position(*path)
        return Fault(self.file, line, column, message, suggestion)

    def with_value(self, path: Path, source: Path) -> Document:
        """A copy in which the value at `source` also stands at `path`, with the positions of `source`."""
        value: Any = self.data
        for part in source:
            value = value[part]
        values = {key: place for key, place in self.values.items() if key[: len(path)] != path}
        keys = {key: place for key, place in self.keys.items() if key[: len(path)] != path}
        for old, new in ((self.values, values), (self.keys, keys)):
            for key, place in old.items():
                if key[: len(source)] == source:
                    new[path + key[len(source) :]] = place
        return replace(self, data=_put(self.data, path, value), values=values, keys=keys)


def unique(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Sorted by position; of faults with the same place and message the first that suggests something."""
    kept: dict[tuple[int, int, str], Fault] = {}
    for fault in faults:
        key = (fault.line, fault.column, fault.message)
        if key not in kept or kept[key].suggestion is None:
            kept[key] = fault
    return tuple(kept[key] for key in sorted(kept))


def read_document(raw: bytes, file: str, *, use_c: bool = True) -> Document:
    """Read one YAML document from `raw`; `file` is its name in faults. `use_c=False` takes the pure Python parser."""
    text, fault = _decode(raw, file)
    if fault is not None:
        return Document(file, None, faults=(fault,))
    return _Reader(text, file, use_c).read()


# --- text -------------------------------------------------------------------------------------------------------------

# The characters that YAML admits (1.2.2, 5.1), inverted; a NUL is what a binary file shows first.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def _decode(raw: bytes, file: str) -> tuple[str, Fault | None]:
    if len(raw) > MAX_BYTES:
        return "", Fault(file, 0, 0, f"is {len(raw)} bytes long; the largest file that is read has {MAX_BYTES}")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "", Fault(file, 1, 1, "is UTF-16 text", "save it as UTF-8")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _line_column(raw[: error.start].decode("utf-8", "replace"))
        return "", Fault(file, line, column, f"byte 0x{raw[error.start]:02x} is not UTF-8 text", "save it as UTF-8")
    bad = _NOT_TEXT.search(text)
    if bad is not None:
        line, column = _line_column(text[: bad.start()])
        message = f"character U+{ord(bad[0]):04X} is not allowed in YAML"
        return "", Fault(file, line, column, message, "is this a text file?")
    return text, None


def _line_column(before: str) -> tuple[int, int]:
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(lines), len(lines[-1]) + 1


# --- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A value as it stands in the file. `items`: a list's nodes, or a mapping's keys and values in turn."""

    place: Place
    kind: str
    text: str = ""
    plain: bool = False
    alias: _Node | None = None
    items: list[_Node] = field(default_factory=list)
    complete: bool = False


class _Stop(Exception):  # noqa: N818 - not an error: the rest of the file cannot be read
    pass


class _Reader:
    def __init__(self, text: str, file: str, use_c: bool) -> None:
        self._text = text
        self._file = file
        self._loader: Any = yaml.CSafeLoader if use_c and yaml.__with_libyaml__ else yaml.SafeLoader
        self._faults: list[Fault] = []
        self._values: dict[Path, Place] = {}
        self._keys: dict[Path, Place] = {}
        self._count = 0

    def read(self) -> Document:
        data = None
        try:
            root = self._compose()
            if root is None or (root.kind == "scalar" and root.plain and not root.text):
                raise self._stop(Place(1, 1), "is empty")
            if root.kind != "mapping":
                what = "a list" if root.kind == "sequence" else "a single value"
                raise self._stop(root.place, f"holds {what}; expected a mapping (`key: value` lines)")
            data = self._construct(root, (), 1)
        except _Stop:
            data = None
        except yaml.MarkedYAMLError as error:
            self._faults.append(self._syntax_fault(error))
        except (yaml.YAMLError, RecursionError) as error:
            self._faults.append(Fault(self._file, 1, 1, f"is not YAML: {error}"))
        return Document(self._file, data, self._values, self._keys, unique(self._faults))

    def _fault(self, place: Place, message: str, suggestion: str | None = None) -> None:
        self._faults.append(Fault(self._file, place.line, place.column, message, suggestion))

    def _stop(self, place: Place, message: str, suggestion: str | None = None) -> _Stop:
        self._fault(place, message, suggestion)
        return _Stop()

    def _compose(self) -> _Node | None:
        """Events to nodes, without recursion: depth is bounded before anything else is done with it."""
        root: _Node | None = None
        open_nodes: list[_Node] = []
        anchors: dict[str, _Node] = {}
        nodes = 0
        for event in self._events():
            mark = event.start_mark
            place = Place(mark.line + 1, mark.column + 1)
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise self._stop(
                    place, "a second document begins here", "one file holds one document; remove the `---`"
                )
            if isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                open_nodes.pop().complete = True
                continue
            if not isinstance(event, yaml.NodeEvent):
                continue
            node = self._node(event, place, anchors)
            nodes += 1
            if nodes > 2 * MAX_VALUES:
                raise self._stop(place, f"holds more than {2 * MAX_VALUES} keys and values")
            if open_nodes:
                open_nodes[-1].items.append(node)
            else:
                root = node
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append(node)
                if len(open_nodes) > MAX_DEPTH:
                    raise self._stop(place, f"nested deeper than {MAX_DEPTH} levels")
        return root

    def _events(self) -> Iterator[Any]:
        loader = self._loader(self._text)
        try:
            while loader.check_event():
                yield loader.get_event()
        finally:
            loader.dispose()

    def _node(self, event: Any, place: Place, anchors: dict[str, _Node]) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            target = anchors.get(str(event.anchor))
            if target is None:
                raise self._stop(place, f"alias `*{event.anchor}` has no anchor `&{event.anchor}` before it")
            if not target.complete:
                raise self._stop(place, f"alias `*{event.anchor}` stands inside its own anchor")
            return _Node(place, "alias", alias=target)
        if event.tag is not None:
            self._fault(place, f"tag `{event.tag}` is not allowed", "values are plain data; quote text instead")
        if isinstance(event, yaml.ScalarEvent):
            node = _Node(place, "scalar", event.value, plain=not event.style, complete=True)
        else:
            node = _Node(place, "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence")
        if event.anchor:
            anchors[event.anchor] = node
        return node

    # --- values -------------------------------------------------------------------------------------------------------

    def _construct(self, node: _Node, path: Path, depth: int) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._stop(node.place, f"holds more than {MAX_VALUES} values once its aliases are expanded")
        if depth > MAX_DEPTH:
            raise self._stop(node.place, f"nested deeper than {MAX_DEPTH} levels once its aliases are expanded")
        if node.alias is not None:
            return self._construct(node.alias, path, depth)
        self._values[path] = node.place
        if node.kind == "sequence":
            return [self._item(item, (*path, index), depth) for index, item in enumerate(node.items)]
        if node.kind == "scalar":
            return self._scalar(node)
        result: dict[str, Any] = {}
        for key_node, value_node in zip(node.items[::2], node.items[1::2], strict=True):
            key = self._key(key_node)
            if key is None:
                continue
            here = (*path, key)
            if key in result:
                self._fault(key_node.place, f"key `{key}` stands here twice, first on line {self._keys[here].line}")
                continue
            self._keys[here] = key_node.place
            if value_node.plain and not value_node.text:
                self._values[here] = value_node.place
                self._fault(key_node.place, f"key `{key}` has no value")
            result[key] = self._construct(value_node, here, depth + 1)
        return result

    def _item(self, node: _Node, path: Path, depth: int) -> Any:
        if node.plain and not node.text:
            self._fault(node.place, "list item without a value")
        return self._construct(node, path, depth + 1)

    def _key(self, node: _Node) -> str | None:
        if node.kind != "scalar":
            self._fault(node.place, f"a key must be text, here it is {'an alias' if node.alias else 'a ' + node.kind}")
            return None
        if node.plain and node.text == "<<":
            self._fault(node.place, "merge keys (`<<`) are not supported", "write the keys out, or alias whole values")
            return None
        # `on:` and `off:` are the text that stands there (YAML 1.2), so only what 1.2 takes for no text is refused.
        if node.plain and not isinstance(resolve(node.text), str):
            shown = node.text or "nothing"
            self._fault(node.place, f"a key must be text, here it is `{shown}`", "quote it if it is meant as text")
            return None
        return node.text

    def _scalar(self, node: _Node) -> Any:
        if not node.plain:
            return node.text
        other = other_reading(node.text)
        if other is not None:
            self._fault(node.place, f"`{_clip(node.text)}` {other[0]}", other[1])
        return resolve(node.text)

    def _syntax_fault(self, error: yaml.MarkedYAMLError) -> Fault:
        lines = self._text.splitlines()
        mark = error.problem_mark or error.context_mark
        at_end = mark is not None and (mark.line, mark.column) >= (len(lines) - 1, len(lines[-1]) if lines else 0)
        if at_end and error.context_mark is not None:
            mark = error.context_mark  # what was opened says more than where the file ends
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        if line > len(lines):
            line, column = max(1, len(lines)), len(lines[-1]) + 1 if lines else 1
        source = lines[line - 1] if lines else ""
        indent = source[: len(source) - len(source.lstrip())]
        if "\t" in indent or source[column - 1 : column] == "\t":
            tab = source.index("\t") + 1 if "\t" in indent else column
            return Fault(self._file, line, tab, "tab used for indentation", "YAML indents with spaces")
        problem = error.problem or "syntax error"
        for fragment, sentence in _PROBLEMS:
            if fragment in problem:
                return Fault(self._file, line, column, *sentence)
        return Fault(self._file, line, column, f"is not YAML here: {problem}")


_PROBLEMS: tuple[tuple[str, tuple[str, str | None]], ...] = (
    ("exceeded maximum nesting depth", (f"nested deeper than {MAX_DEPTH} levels", None)),
    (
        "mapping values are not allowed",
        ("unexpected `:`", "quote text that holds `: `, or check the indentation above"),
    ),
    ("could not find expected ':'", ("a `:` is missing on this or the line before", "every line is `key: value`")),
    ("expected ',' or ']'", ("this list is not closed with `]`, or a comma is missing", "check the brackets before")),
    ("expected ',' or '}'", ("this mapping is not closed with `}`, or a comma is missing", "check the braces before")),
    ("expected <block end>", ("the indentation does not fit the lines above", "align keys of one mapping")),
    ("expected block end", ("the indentation does not fit the lines above", "align keys of one mapping")),
    ("did not find expected key", ("the indentation does not fit the lines above", "align keys of one mapping")),
    ("did not find expected '-' indicator", ("the indentation does not fit the lines above", "align list items")),
    ("unexpected end of stream", ("a quote is opened here and not closed", None)),
    ("block sequence entries are not allowed", ("a list cannot begin here", "put `- ` on its own line")),
    ("sequence entries are not allowed", ("a list cannot begin here", "put `- ` on its own line")),
    ("cannot start any token", ("this character cannot begin a value", "quote the text")),
)


def _clip(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _put(data: Any, path: Path, value: Any) -> Any:
    """`data` with `value` at `path`; containers on the way are copied, missing mappings made."""
    if not path:
        return value
    head, *rest = path
    if isinstance(data, list) and isinstance(head, int):
        return [_put(item, tuple(rest), value) if index == head else item for index, item in enumerate(data)]
    old = data if isinstance(data, dict) else {}
    return {**old, head: _put(old.get(head), tuple(rest), value)}
