"""The YAML reader: positions, what plain scalars mean, and files that mean harm."""

from __future__ import annotations

import random

import pytest
import yaml

from rig.plan.yaml_positions import MAX_BYTES, Document, read_document


def read(text: str | bytes, *, use_c: bool = True) -> Document:
    return read_document(text.encode() if isinstance(text, str) else text, "f.yaml", use_c=use_c)


def only_fault(document: Document) -> tuple[int, int, str]:
    (fault,) = document.faults
    return fault.line, fault.column, fault.message


BOTH = pytest.mark.parametrize("use_c", [True, False], ids=["libyaml", "python"])


@BOTH
def test_every_value_and_key_has_its_place(use_c: bool) -> None:
    document = read("a: 1\nb:\n  - x\n  - {c: 'zwei', d: [3]}\n", use_c=use_c)
    assert document.data == {"a": 1, "b": ["x", {"c": "zwei", "d": [3]}]}
    assert document.position("b") == (2, 1)
    assert document.position("b", 0) == (3, 5)
    assert document.position("b", 1, "c") == (4, 6)
    assert document.values["b", 1, "d", 0] == (4, 21)
    assert document.position("b", 1, "nowhere", "at", "all") == (4, 5)


@BOTH
def test_columns_count_characters_not_bytes(use_c: bool) -> None:
    assert read("{ä: 'öß', b: x}", use_c=use_c).position("b") == (1, 11)


@BOTH
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x449", 0x449),
        ("-12", -12),
        ("0", 0),
        ("4.5", 4.5),
        ("1e3", 1000.0),
        ("true", True),
        ("null", None),
        ("'null'", "null"),
        ('"0x10"', "0x10"),
        ("5 ms", "5 ms"),
        ("2026-01-01", "2026-01-01"),
        ("02:52:49:47:00:10", "02:52:49:47:00:10"),
        (".nan", ".nan"),
        ("1.2.3", "1.2.3"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object, use_c: bool) -> None:
    document = read(f"a: {text}", use_c=use_c)
    assert document.faults == ()
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


@pytest.mark.parametrize(
    "word", ["yes", "No", "ON", "off", "010", "-07", "1_000", "0b11", "0o17", "12:30", "1:2.5", "0x_f"]
)
def test_what_yaml_1_1_reads_otherwise_is_a_fault_and_quoted_it_is_text(word: str) -> None:
    assert only_fault(read(f"a: {word}"))[:2] == (1, 4)
    assert read(f"a: '{word}'").data == {"a": word}
    assert read(f"a: '{word}'").faults == ()


def test_every_plain_scalar_that_pyyaml_reads_otherwise_is_a_fault() -> None:
    """PyYAML is a YAML 1.1 reader: where it disagrees about a plain scalar, ours must not accept silently."""
    rng = random.Random(5)
    for _ in range(4_000):
        word = "".join(rng.choice("0123456789_:.xobeE+-nyf") for _ in range(rng.randint(1, 6)))
        try:
            theirs = yaml.safe_load(f"a: {word}")["a"]
        except (yaml.YAMLError, TypeError, ValueError):
            continue
        document = read(f"a: {word}")
        if document.faults or isinstance(theirs, str | list | dict | type(None)):
            continue
        assert document.data["a"] == theirs or document.data["a"] == word, word
        if isinstance(theirs, int):
            assert document.data["a"] == theirs, word


def test_on_and_off_are_keys_as_they_stand() -> None:
    assert read("on: 1\noff: 2").data == {"on": 1, "off": 2}


def test_anchor_serves_its_aliases_with_its_own_place() -> None:
    document = read("a: &x {max: 5 ms}\nb: *x\n")
    assert document.data == {"a": {"max": "5 ms"}, "b": {"max": "5 ms"}}
    assert document.position("b") == (2, 1)
    assert document.values["b", "max"] == (1, 13)


@BOTH
def test_alias_bomb_is_refused(use_c: bool) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    line, _, message = only_fault(read("\n".join(lines), use_c=use_c))
    assert "aliases are expanded" in message
    assert line >= 1


@BOTH
@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused(opening: str, use_c: bool) -> None:
    assert "nested deeper than 32" in only_fault(read(f"a: \n  {opening * 3000}", use_c=use_c))[2]


def test_deep_nesting_through_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 60)]
    assert "nested deeper" in only_fault(read("\n".join(lines)))[2]


def test_size_and_number_of_values_are_bounded() -> None:
    assert "largest file that is read" in only_fault(read(b"a: " + b"x" * MAX_BYTES))[2]
    assert "holds more than" in only_fault(read("a: [" + "1," * 120_000 + "]"))[2]


@pytest.mark.parametrize(
    ("raw", "place", "message"),
    [
        (b"a: 1\nb: \xff\xfe\n", (2, 4), "byte 0xff is not UTF-8"),
        (b"\xff\xfea\x00", (1, 1), "UTF-16"),
        (b"\x7fELF\x01\x01\x00", (1, 1), "U+007F"),
        (b"a: 1\nb\x00: 2", (2, 2), "U+0000"),
        (b"a: \x1b[31mred", (1, 4), "U+001B"),
    ],
)
def test_binary_is_named(raw: bytes, place: tuple[int, int], message: str) -> None:
    line, column, found = only_fault(read(raw))
    assert (line, column) == place
    assert message in found


def test_byte_order_mark_and_windows_line_ends_are_read() -> None:
    document = read(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert document.data == {"a": 1, "b": 2}
    assert document.position("b") == (2, 1)


BROKEN = [
    "a: b: c",
    "a: [1, 2",
    "a: {b: 1",
    "a:\n  - 1\n b: 2",
    'a: "x',
    "a: 1\n b: 2",
    "a: @x",
    "a: %x",
    "- a\nb: 1",
    "a: - b",
    "a\nb: 1",
    "a:\n\tb: 1",
    "a: &",
    "? [",
    "a: 'x' y",
    "}",
    "a: *",
    "%YAML 3.0\n---\na: 1",
]


@pytest.mark.parametrize("text", BROKEN)
def test_both_parsers_report_a_broken_file_on_the_same_line(text: str) -> None:
    with_c, pure = read(text), read(text, use_c=False)
    assert with_c.data is None
    assert pure.data is None
    assert with_c.faults[0].line == pure.faults[0].line


def test_both_parsers_read_the_same_from_mutated_plans() -> None:
    """And neither ever raises."""
    source = "plan: x\nflows:\n  a: {from: board, p: [1, 'two', \"3\"]}\n  b: &l {max: 5 ms}\nc: *l\n# end\nd: |\n  t\n"
    rng = random.Random(7)
    agreed = 0
    for _ in range(1500):
        text = list(source)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(
                ["", "\t", ":", "{", "]", "'", '"', "\n", "-", "&", "*", "!", "#", "é", " "]
            )
        with_c, pure = read("".join(text)), read("".join(text), use_c=False)
        # `[, 1]` is read by libyaml (an empty item, which is a fault here) and passed over by the Python parser.
        if not with_c.faults and not pure.faults:
            agreed += 1
            assert (with_c.data, with_c.values, with_c.keys) == (pure.data, pure.values, pure.keys)
    assert agreed > 300
