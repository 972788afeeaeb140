"""Broken plans: each gives one clear message at the right place. `§` marks where the fault must be reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import Fault, PlanError
from rig.plan.load import load_plan, load_plan_bytes

BASE = """\
plan: base
requires: [link-relay]
firmware: {variant: zero_copy}
inference: {requests: 400, load: {closed: {in_flight: 1}}}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
  raw: {from: board, to: jetson}
checks:
  answer-time:
    response_time: {request: requests, response: answers}
    limits: {p50: {max: 5 ms}, p99: {max: 50 ms}}
  no-loss:
    loss: {of: requests, answered_by: answers}
    limits: {count: {max: 0}}
"""

REQUESTS = "  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}"
RESPONSE = "    response_time: {request: requests, response: answers}"
LIMITS = "    limits: {p50: {max: 5 ms}, p99: {max: 50 ms}}"
COUNT = "    limits: {count: {max: 0}}"
LOSS = "    loss: {of: requests, answered_by: answers}"
INFERENCE = "inference: {requests: 400, load: {closed: {in_flight: 1}}}"
VARIANT = "firmware: {variant: zero_copy}"
PUSH = "inference: {mode: push, requests: 400, load: {open: {every: 5 ms}}}"

UNCOUNTED = (
    BASE.replace("  raw: {from: board, to: jetson}", "  raw: {}")
    + "  x: {loss: {of: §raw}, limits: {count: {max: 0}}}\n"
)

# name, what is replaced in BASE (None: the whole), by what, words of the message, words of the suggestion.
CASES: list[tuple[str, str | None, str, str, str]] = [
    # --- YAML -----------------------------------------------------------------------------------------------------
    ("empty", None, "§", "is empty", ""),
    ("only a comment", None, "§# nothing here\n", "is empty", ""),
    ("a list", None, "§- plan: x\n", "holds a list; expected a mapping", ""),
    ("a scalar", None, "§hello\n", "holds a single value", ""),
    ("duplicate key", VARIANT, f"{VARIANT}\n§{VARIANT}", "key `firmware` stands here twice, first on line 3", ""),
    ("duplicate nested", VARIANT, "firmware: {flash: never, §flash: always}", "key `flash` stands here twice", ""),
    ("tab", "  no-loss:", "§\tno-loss:", "tab used for indentation", "spaces"),
    ("tab after spaces", "    loss:", "  §\tloss:", "tab used for indentation", "spaces"),
    ("bad indentation", "  no-loss:", "   §no-loss:", "indentation does not fit", "align"),
    ("colon in text", "plan: base", "plan: base\ndescription: a§: b", "unexpected `:`", "quote"),
    ("open bracket", "requires: [link-relay]", "requires: [link-relay", "not closed with `]`", ""),
    ("open quote", None, 'plan: §"base\n', "a quote is opened here and not closed", ""),
    ("two documents", None, f"{BASE}§---\nplan: other\n", "a second document begins here", "remove"),
    ("key without value", VARIANT, "§firmware:", "key `firmware` has no value", ""),
    (
        "limit without value",
        COUNT,
        "    limits:\n      ratio: {max: 1 %}\n      §count:",
        "key `count` has no value",
        "",
    ),
    ("item without value", "[link-relay]", "[link-relay, §~, ]", "null stands where text is expected", ""),
    ("number as key", VARIANT, "§12: x", "a key must be text, here it is `12`", "quote"),
    ("true as key", VARIANT, "§true: x", "a key must be text, here it is `true`", "quote"),
    ("list as key", VARIANT, "§[a]: x", "a key must be text, here it is a sequence", ""),
    ("merge key", COUNT, "    limits: {§<<: {count: {max: 0}}, ratio: {max: 1 %}}", "merge keys", "write the keys out"),
    ("off as a value", VARIANT, "firmware: {variant: §off}", "`off` means a boolean to some YAML readers", "quote"),
    ("yes as a key", VARIANT, "§yes: x", "unknown key `yes`", "known here"),
    ("base 60", VARIANT, "firmware: {variant: §12:30}", "base 60", "quote"),
    ("octal", "requests: 400", "requests: §0400", "`0400` is octal to some", "leading zero"),
    ("underscored", "requests: 400", "requests: §1_000", "`1_000` is a number to some", "plain decimal"),
    ("tag", "plan: base", "plan: §!!python/name:os.system base", "tag `tag:yaml.org,2002:python/name:os.system`", ""),
    ("unknown alias", VARIANT, "firmware: §*fw", "alias `*fw` has no anchor `&fw` before it", ""),
    ("recursive alias", VARIANT, "firmware: &fw {variant: §*fw}", "stands inside its own anchor", ""),
    # --- keys -----------------------------------------------------------------------------------------------------
    ("misspelt top-level key", "requires:", "§require:", "unknown key `require`", "`requires`"),
    ("misspelt key", "variant: zero_copy", "§varient: zero_copy", "unknown key `varient`", "`variant`"),
    ("key one level too high", VARIANT, "§variant: zero_copy", "unknown key `variant`", "inside `firmware:`"),
    ("percentile outside limits", COUNT, f"{COUNT}\n    §p99: {{max: 1 ms}}", "unknown key `p99`", "inside `limits:`"),
    ("python name of a key", "{from: jetson", "{§src: jetson", "unknown key `src`", "known here: from"),
    (
        "percentiles spelt out",
        LIMITS,
        "    limits: {§percentiles: {p50: {max: 1 ms}}}",
        "unknown key `percentiles`",
        "",
    ),
    ("plan name missing", "plan: base\n", "§", "key `plan` is missing", ""),
    ("metric key missing", RESPONSE, "    §response_time: {request: requests}", "key `response` is missing", ""),
    ("limits missing", f"{LOSS}\n{COUNT}", LOSS, "key `limits` is missing in `checks.no-loss`", ""),
    ("no flows", None, "§plan: x\nchecks: {a: {gap: {of: b}, limits: {each: {max: 1 s}}}}\n", "`flows` is missing", ""),
    # --- values ---------------------------------------------------------------------------------------------------
    ("bad name", "plan: base", "plan: §My Plan", "`My Plan` is not a name", "`my-plan` would do"),
    ("bad check name", "  no-loss:", "  §no_loss:", "`no_loss` is not a name", "`no-loss`"),
    ("text for a number", "requests: 400", 'requests: §"400"', "text `400` stands where a whole number", "quotes"),
    ("float for a number", "requests: 400", "requests: §4.5", "`4.5` stands where a whole number is expected", ""),
    ("true for a number", "requests: 400", "requests: §true", "true stands where a whole number is expected", ""),
    ("zero requests", "requests: 400", "requests: §0", "`0` is below the smallest allowed value, 1", ""),
    ("port too large", "udp.dstport: 5005", "udp.dstport: §70000", "above the largest allowed value, 65535", ""),
    ("number for text", "plan: base", "plan: §5", "`5` stands where text is expected", "quote it"),
    ("text for a list", "[link-relay]", "§link-relay", "`link-relay` stands where a list is expected", ""),
    ("list for a mapping", VARIANT, "firmware: §[zero_copy]", "a list stands where a mapping is expected", "variant"),
    ("number for a bound", "count: {max: 0}", "count: §0", "`0` stands where a mapping is expected", "keys: max"),
    ("requirement", "plan: base", "plan: base\nrequirement: §7", "text or a list of texts is expected", ""),
    ("unknown choice", "variant: zero_copy", "flash: §allways", "is not one of `always`", "`always`"),
    ("unknown endpoint", "{from: jetson", "{from: §jetsn", "neither board, jetson, rig nor an IP", "`jetson`"),
    (
        "unknown protocol",
        "protocol: token-v2}\n  a",
        "protocol: §token-v3}\n  a",
        "is not one of `token-v1`",
        "token-v",
    ),
    (
        "mode from another plan",
        "{requests: 400",
        "{mode: §stream, requests: 400",
        "is not one of `request`, `push`",
        "",
    ),
    # --- units ----------------------------------------------------------------------------------------------------
    ("bare number", "max: 5 ms", "max: §5", "bare number 5: expected a duration with a unit", ""),
    ("unknown unit", "max: 5 ms", "max: §5 msec", "unknown unit 'msec'", ""),
    ("micro sign", "max: 5 ms", "max: §5 µs", "unknown unit 'µs'", ""),
    ("wrong kind of unit", "max: 5 ms", "max: §5 %", "unknown unit '%' in '5 %': expected a duration", ""),
    ("no number", "max: 5 ms", "max: §fast", "'fast' is not a quantity", ""),
    ("negative", "max: 5 ms", "max: §-5 ms", "'-5 ms' is negative", ""),
    ("finer than a nanosecond", "max: 5 ms", "max: §0.5 ns", "finer than ns", ""),
    ("beyond all bounds", "max: 50 ms", "max: §999999999999 s", "beyond the largest duration", ""),
    ("share above all", "{count: {max: 0}}", "{ratio: {max: §120 %}}", "not between 0 % and 100 %", ""),
    ("share without unit", "{count: {max: 0}}", "{ratio: {max: §0.01}}", "bare number 0.01: expected a share", ""),
    # --- checks and limits ----------------------------------------------------------------------------------------
    ("no checks", None, BASE.split("checks:")[0] + "§checks: {}\n", "holds no check", ""),
    ("check named alive", "  no-loss:", "  §alive:", "`alive` is the check that every run has", "rename"),
    ("two metrics", RESPONSE, f"{RESPONSE}\n    gap: {{of: answers}}", "exactly one of response_time", ""),
    ("no metric", f"{LOSS}\n", "", "takes exactly one of response_time, gap", ""),
    ("unknown flow", "request: requests", "request: §request", "no flow is named `request`", "`requests`"),
    ("unknown flow in loss", "answered_by: answers", "answered_by: §answer", "no flow is named `answer`", "`answers`"),
    ("no limit", LIMITS, "    §limits: {}", "holds no limit", ""),
    ("bound without end", "p50: {max: 5 ms}", "§p50: {}", "bounds nothing", ""),
    ("min above max", "p50: {max: 5 ms}", "§p50: {min: 9 ms, max: 5 ms}", "min 9 ms is above max 5 ms", ""),
    ("p100", LIMITS, "    limits: {§p100: {max: 1 s}}", "`p100` is not a percentile", "use `each`"),
    ("p0", LIMITS, "    limits: {§p0: {min: 1 ms}}", "`p0` is not a percentile", ""),
    ("second spelling", LIMITS, "    limits: {§p99.0: {max: 1 ms}}", "`p99.0` is not a percentile", ""),
    ("upper case percentile", LIMITS, "    limits: {§P50: {max: 1 s}}", "`P50` is not a percentile", "`p50`"),
    ("count for durations", LIMITS, "    limits: {§count: {max: 0}}", "`count` does not fit response_time", "each"),
    ("percentile for loss", COUNT, "    limits: {§p99: {max: 1 ms}}", "`p99` does not fit loss", "count and ratio"),
    ("percentile of a profile", COUNT, f"{COUNT}\n    hardware: {{§each: {{max: 1 s}}}}", "does not fit loss", ""),
    ("swapped percentiles", LIMITS, "    limits: {p50: {max: §50 ms}, p99: {max: 5 ms}}", "never decides", "swapped"),
    ("percentile above each", LIMITS, "    limits: {p50: {max: §9 ms}, each: {max: 5 ms}}", "never decides", ""),
    ("impossible pair", LIMITS, "    limits: {p50: {min: 9 ms}, p90: {max: §5 ms}}", "never both", ""),
    (
        "at_most under each",
        LIMITS,
        "    limits: {each: {max: 5 ms}, at_most: {count: 1, beyond: §6 ms}}",
        "forbids",
        "",
    ),
    ("never proven", "p99: {max: 50 ms}", "p99.9: {max: §50 ms}", "needs at least 2995", "`requests: 2995`"),
    ("never proven below", "p99: {max: 50 ms}", "p0.1: {min: §1 us}", "needs at least 2995", "proof: sample"),
    ("limit beyond timeout", "p99: {max: 50 ms}", "p99: {max: §2 s}", "2 s is beyond `inference.timeout` (1 s)", ""),
    ("faster than the NPU", VARIANT, "npu: {first_token: 9 ms}", "5 ms can never hold: the scripted NPU", ""),
    ("count above requests", COUNT, "    limits: {count: {max: §400}}", "never be exceeded by 400 requests", ""),
    ("all may be lost", COUNT, "    limits: {ratio: {max: §100 %}}", "this limit never decides", ""),
    ("proof of nothing", COUNT, f"{COUNT}\n    §proof: sample", "no meaning without a percentile limit", ""),
    ("confidence 100 %", "plan: base", "plan: base\nconfidence: §100 %", "proves nothing", "95 %"),
    # --- exchanges ------------------------------------------------------------------------------------------------
    ("id in a raw flow", RESPONSE, "    §response_time: {request: requests, response: raw}", "names no proto", "order"),
    (
        "last by order",
        RESPONSE,
        "    §response_time: {request: requests, response: raw, match: order, to: last}",
        "to:",
        "",
    ),
    ("order of raw", f"{LOSS}", "    §reordering: {of: raw}", "reordering reads the datagrams'", "protocol: token-v2"),
    (
        "gaps in one datagram",
        f"{RESPONSE}\n{LIMITS}",
        "    §gap: {of: answers, within: request_id}\n    limits: {each: {max: 1 s}}",
        "no gaps",
        "npu",
    ),
    ("answers itself", "response: answers", "response: §requests", "`requests` cannot answer itself", ""),
    ("wrong way", "answers: {from: board, to: jetson", "answers: {from: jetson, to: board", "does not come back", ""),
    ("two transports", "udp.dstport: 5005", "udp.dstport: 5005, tcp.dstport: 5005", "asks for UDP and TCP ports", ""),
    ("to itself", "  raw: {from: board, to: jetson}", "  raw: {from: board, to: §board}", "from board to itself", ""),
    (
        "other protocol",
        "  raw: {from: board,",
        "  raw: {protocol: §token-v1, from: board,",
        "but the run speaks token-v2",
        "",
    ),
    (
        "uncounted sender",
        None,
        UNCOUNTED,
        "needs a sender that counts",
        "from: board",
    ),
    ("match without answers", LOSS, "    loss: {of: requests, match: §order}", "no meaning without `answered_by`", ""),
    ("push without a tick", "{requests: 400", "{mode: push, requests: 400", "push mode needs the board's own tick", ""),
    ("push with requests", INFERENCE, PUSH, "in push mode the board sends unasked", "loss"),
    (
        "two loads",
        "{closed: {in_flight: 1}}",
        "{closed: {in_flight: 1}, open: {every: 1 ms}}",
        "exactly one of open",
        "",
    ),
    ("no load", "load: {closed: {in_flight: 1}}", "§load: {}", "load takes exactly one of open, closed", ""),
    ("period of zero", "{closed: {in_flight: 1}}", "{open: {every: §0 ms}}", "no schedule", ""),
    # --- bench, expectation, impairment ---------------------------------------------------------------------------
    ("misspelt capability", "[link-relay]", "[§link-rely]", "unknown capability `link-rely`", "`link-relay`"),
    (
        "impairment unrequired",
        "requires: [link-relay]",
        "§impairment: [{delay: 1 ms}]",
        "capability `link-relay`",
        "add",
    ),
    ("impairment of nothing", VARIANT, "impairment: [§{direction: both}]", "imposes nothing", ""),
    ("unknown selector", VARIANT, "impairment: [{loss: 1 %, select: {§udp.dsport: 5}}]", "unknown key", "udp.dstport"),
    ("expects an unknown check", None, f"{BASE}expect: {{fail: [§no-los]}}\n", "no check is named `no-los`", "no-loss"),
    ("expects twice", None, f"{BASE}expect: {{fail: [alive, §alive]}}\n", "`alive` stands here twice", ""),
    # --- matrix ---------------------------------------------------------------------------------------------------
    ("matrix typo", None, f"{BASE}matrix: {{§firmware.varient: [copy]}}\n", "no `varient`", "`variant`"),
    ("matrix unknown flow", None, f"{BASE}matrix: {{§flows.answer.vlan: [1]}}\n", "no `answer.vlan`", ""),
    ("matrix too deep", None, f"{BASE}matrix: {{§plan.x: [1]}}\n", "leads nowhere", ""),
    ("matrix bad value", None, f"{BASE}matrix: {{inference.requests: [400, §many]}}\n", "`many` stands where", ""),
    ("matrix bare number", None, f"{BASE}matrix: {{npu.first_token: [§5]}}\n", "bare number 5", ""),
    (
        "matrix impossible",
        None,
        f"{BASE}matrix: {{checks.answer-time.limits.p99.max: [1 ms, 9 ms]}}\n",
        "in point max-1ms",
        "",
    ),
    ("matrix no list", None, f"{BASE}matrix: {{firmware.variant: §copy}}\n", "stands where a list is expected", ""),
    ("matrix empty", None, f"{BASE}matrix: {{firmware.variant: §[]}}\n", "an empty list", ""),
    ("matrix twice", None, f"{BASE}matrix: {{firmware.variant: [copy, §copy]}}\n", "`copy` stands here twice", ""),
    ("matrix of names", None, f"{BASE}matrix: {{§plan: [a, b]}}\n", "cannot differ between the points", ""),
    ("matrix overlap", None, f"{BASE}matrix: {{firmware: [{{}}], §firmware.variant: [copy]}}\n", "same place", ""),
    (
        "matrix explosion",
        None,
        f"{BASE}§matrix: {{inference.requests: [{', '.join(map(str, range(400, 700)))}]}}\n",
        "300 points",
        "",
    ),
]


def broken(old: str | None, new: str) -> tuple[str, tuple[int, int] | None]:
    """The plan's text and the place that its mark shows."""
    if old is not None:
        assert BASE.count(old) >= 1, f"{old!r} is not in BASE"
    text = new if old is None else BASE.replace(old, new, 1)
    head, mark, tail = text.partition("§")
    return head + tail, (head.count("\n") + 1, len(head) - head.rfind("\n")) if mark else None


def faults_of(text: str | bytes) -> tuple[Fault, ...]:
    with pytest.raises(PlanError) as caught:
        load_plan_bytes(text.encode() if isinstance(text, str) else text, Path("x.plan.yaml"))
    return caught.value.faults


def test_the_base_is_sound() -> None:
    assert load_plan_bytes(BASE.encode(), Path("x.plan.yaml")).plan.plan == "base"


@pytest.mark.parametrize(("old", "new", "message", "suggestion"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_broken_plan_is_explained(old: str | None, new: str, message: str, suggestion: str) -> None:
    text, place = broken(old, new)
    faults = faults_of(text)
    fitting = [fault for fault in faults if message in fault.message and suggestion in (fault.suggestion or "")]
    assert fitting, [str(fault) for fault in faults]
    if place is not None:
        assert place in [(fault.line, fault.column) for fault in fitting], [str(fault) for fault in faults]
    assert all(fault.line >= 1 and fault.column >= 1 for fault in faults)
    assert not any("pydantic" in str(fault) or "Input should" in str(fault) for fault in faults)


def test_all_faults_of_a_file_are_reported_at_once_in_order() -> None:
    text = BASE.replace("variant:", "varient:").replace("max: 5 ms", "max: 5").replace("of: requests", "of: request")
    text += "matrix: {firmware.varient: [copy]}\nexpect: {fail: [nothing]}\n"
    faults = faults_of(text)
    assert [(fault.line, fault.message.split(":")[0]) for fault in faults] == [
        (3, "unknown key `varient`"),
        (12, "bare number 5"),
        (14, "no flow is named `request`"),
        (16, "matrix path `firmware.varient` leads nowhere"),
        (17, "no check is named `nothing`"),
    ]


def test_one_slip_is_reported_once() -> None:
    """A broken flow is not also an unknown one, and a broken `inference` not also too few samples."""
    assert len(faults_of(BASE.replace("{from: board, to: jetson, udp", "{from: bord, to: jetson, udp"))) == 1
    assert len(faults_of(BASE.replace("requests: 400", "requests: many"))) == 1


def test_message_begins_with_file_line_and_column() -> None:
    assert str(faults_of(BASE.replace("variant:", "varient:"))[0]) == (
        "x.plan.yaml:3:12: unknown key `varient` (did you mean `variant`?)"
    )


def test_missing_file_folder_and_locked_file_are_plan_errors(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.plan.yaml", "does not exist"), (tmp_path, "is not a regular file")):
        with pytest.raises(PlanError, match=message) as caught:
            load_plan(path)
        assert caught.value.faults[0].file == str(path)
