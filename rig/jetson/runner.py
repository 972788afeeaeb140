"""The rig's half on the Jetson: runs inference, exchanges datagrams with the board, writes every stamp down.

One self-contained file for Python 3.6 and later (JetPack 4): standard library, plus onnxruntime and numpy where a spec
names a model. The rig uploads it and talks to it over the SSH channel:

    runner.py run      stdin: one line with the spec (JSON), then orders: `probe COUNT BUDGET_MS`, `go`, `abort`, `bye`
                       stdout: lines `@rig {"phase": ...}`: hello, alive (every second), ready, probed, warmed-up,
                       start-sentinel, gave-up, end-sentinel, done | error
    runner.py hold     stdin: one line with owner, host, run_id, deadline_s (JSON); holds the lease until its end
    runner.py sweep    removes what stale runs left; prints one line
    runner.py state    prints what is known of this machine; one line

It ends with its parent (end of file on stdin), with its own deadline, on SIGTERM, or after `bye`. It holds the lease of
the machine from `hello` to its end. Everything below `<folder of this file>/runs/<run id>/` belongs to one run.

All stamps are ns of CLOCK_MONOTONIC. docs/jetson.md describes the spec and every event.
"""

import collections
import contextlib
import errno
import fcntl
import gc
import glob
import hashlib
import json
import os
import platform
import random
import re
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import zlib
from typing import Any, Callable, Counter, Deque, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

HEARTBEAT_S = 1.0
HOST_S = 5.0  # between two looks at clocks and temperatures
STALE_S = 15.0  # a lease whose heartbeat is older has no living holder
GRACE_S = 1.0  # from a stop until the process ends without the main thread
LINGER_S = 120.0  # from `done` until the rig has collected

SENTINEL_START, SENTINEL_END, SENTINEL_PROBE = 1, 2, 3
SENTINEL_NAMES = {1: "start", 2: "end", 3: "probe"}
SENTINEL_TRIES, SENTINEL_INTERVAL_NS = 20, 50000000
SENTINEL_COUNTERS = (
    "rx_requests", "rx_bad", "tx_answers", "tx_acks", "pushes", "tx_err", "rx_sentinels", "uptime_ms",
)  # fmt: skip
WARMUP_BASE, WARMUP_IDS = 0x80008000, 0x7FFF  # request ids of warm-up exchanges; measured ones count from 1
WARMUP_GIVE_UP = 3  # consecutive warm-up exchanges without an answer
LOAD_GIVE_UP = 20  # the same for every place in a closed load, and at least the spec's give_up_ns

HERE = os.path.dirname(os.path.abspath(__file__))
SYS = "/sys"

# Python 3.6 has only the float clocks; their error stays below 1 ns (monotonic) and 0.3 us (realtime).
mono_ns = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
real_ns = getattr(time, "time_ns", None) or (lambda: int(time.time() * 1e9))


Facts = Dict[str, Any]


class RunnerError(Exception):
    """An expected failure: a code for the rig, a sentence, the next step."""

    def __init__(self, code: str, what: str, hint: str = "") -> None:
        Exception.__init__(self, what)
        self.code, self.what, self.hint = code, what, hint


class Stopped(Exception):  # noqa: N818 - an order, not an error
    """The run ends early; the reason is in `Control.stop_reason`."""


# --- wire formats -----------------------------------------------------------------------------------------------------

REQUEST, ANSWER, ACKNOWLEDGE, ERROR, SENTINEL = 1, 2, 3, 4, 5
FIRST, LAST = 1, 2
QUEUED_UNKNOWN = 0xFFFFFFFF

_V2 = struct.Struct("<2sBBIIIHHQQQII")
_V1 = struct.Struct("<HHB")


class Datagram(NamedTuple):
    """One datagram of the board; stamps are its own clock's ns, 0 unknown."""

    type: int
    flags: int
    request_id: int
    sequence: int
    boot_id: int
    t_rx: int
    t_ready: int
    t_send: int
    t_queued: int
    payload: bytes


def encode_v2(
    kind: int,
    flags: int,
    request_id: int,
    sequence: int,
    boot_id: int,
    t_ready: int,
    t_send: int,
    t_queued: int,
    payload: bytes,
) -> bytes:
    """A token-v2 datagram; t_rx is unknown to a sender of requests."""
    fields = (b"T2", kind, flags, request_id, sequence, boot_id, len(payload), 0, 0, t_ready, t_send, t_queued)
    return _V2.pack(*(fields + (zlib.crc32(_V2.pack(*(fields + (0,)))),))) + payload


def decode_v2(data: bytes) -> Optional[Datagram]:
    """A Datagram, or None when magic, length or CRC are wrong."""
    if len(data) < _V2.size:
        return None
    magic, kind, flags, request_id, sequence, boot_id, size, zero, t_rx, t_ready, t_send, t_queued, crc = (
        _V2.unpack_from(data)
    )
    if magic != b"T2" or zero or size != len(data) - _V2.size or zlib.crc32(data[:48] + b"\0\0\0\0") != crc:
        return None
    return Datagram(kind, flags, request_id, sequence, boot_id, t_rx, t_ready, t_send, t_queued, data[_V2.size :])


def encode_v1(sequence: int, payload: bytes) -> bytes:
    """A token-v1 datagram; payload is uint16 tokens."""
    return _V1.pack(sequence & 0xFFFF, len(payload), sum(bytearray(payload)) & 0xFF) + payload


def decode_v1(data: bytes) -> Optional[Datagram]:
    """A Datagram with the sequence as its request id, or None when length or sum are wrong."""
    if len(data) < _V1.size:
        return None
    sequence, size, total = _V1.unpack_from(data)
    payload = data[_V1.size :]
    if size != len(payload) or sum(bytearray(payload)) & 0xFF != total:
        return None
    return Datagram(ANSWER, 0, sequence, sequence, 0, 0, 0, 0, QUEUED_UNKNOWN, payload)


def request_payload(protocol: str, tokens: List[int], answer_tokens: int) -> bytes:
    """What a request carries: the number of answer tokens that it asks for, then its tokens."""
    if protocol == "token-v1":
        return struct.pack("<H%dH" % len(tokens), answer_tokens, *tokens)
    return struct.pack("<HH%dI" % len(tokens), answer_tokens, 0, *tokens)


# --- events -----------------------------------------------------------------------------------------------------------


class Events(object):
    """events.jsonl, written by a thread of its own so that no send waits for a disk.

    `add` only appends to a queue. The writer works in small pieces and lets go of the interpreter between them.
    A write that fails (disk full) is kept in `failure`, calls `on_failure` once, and nothing more is written.
    """

    PIECE = 16

    def __init__(self, path: str, on_failure: Callable[[], None]) -> None:
        self.path = path
        self.failure: Optional[Exception] = None
        self._on_failure = on_failure
        self._queue: Deque[Facts] = collections.deque()
        self._closing = threading.Event()
        self._file = open(path, "wb", buffering=1 << 16)  # noqa: SIM115 - the writer thread closes it
        self._thread = threading.Thread(target=self._write, name="events", daemon=True)
        self._thread.start()

    def add(self, event: str, t_ns: int, **fields: Any) -> None:
        fields["event"], fields["t_ns"] = event, t_ns
        self._queue.append(fields)

    def close(self, timeout: float = 10.0) -> Facts:
        """Write what is queued. Returns {"bytes", "sha256"} of the file."""
        self._closing.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise RunnerError("events", "the disk did not take the events within %.0f s" % timeout)
        digest = hashlib.sha256()
        with open(self.path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        return {"bytes": os.path.getsize(self.path), "sha256": digest.hexdigest()}

    def _write(self) -> None:
        encode = json.JSONEncoder(separators=(",", ":"), sort_keys=False).encode
        try:
            with self._file:
                while True:
                    last_round = self._closing.wait(0.2)
                    while self._queue:
                        count = min(self.PIECE, len(self._queue))
                        piece = [encode(self._queue.popleft()) for _ in range(count)]
                        self._file.write(("\n".join(piece) + "\n").encode("ascii"))
                        if not last_round:
                            time.sleep(0.0005)
                    self._file.flush()
                    if last_round:
                        return
        except OSError as error:
            self.failure = error
            self._on_failure()


# --- lease ------------------------------------------------------------------------------------------------------------


def process_identity(pid: Optional[int] = None) -> Facts:
    """What tells a process from every other one on this machine, also after its pid was used again."""
    pid = pid or os.getpid()
    return {
        "pid": pid,
        "start_time": process_start(pid),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }


def process_start(pid: int) -> Optional[int]:
    """Start time of a process in clock ticks since boot (proc(5), stat field 22), None when there is none."""
    text = read_text("/proc/%d/stat" % pid)
    fields = text[text.rfind(")") + 2 :].split() if text else []
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def is_alive(identity: Any, default: bool) -> bool:
    """Whether the process of process_identity() lives; `default` where this namespace cannot tell."""
    if not isinstance(identity, dict) or identity.get("boot_id") != read_text("/proc/sys/kernel/random/boot_id"):
        return False
    if identity.get("pid_namespace") != os.readlink("/proc/self/ns/pid"):
        return default
    start = process_start(as_int(identity.get("pid")))
    return start is not None and start == identity.get("start_time")


def lease_is_live(lease: Facts) -> bool:
    """A lease lives while its process does and its heartbeat is fresh (one clock: same boot is part of alive)."""
    fresh = 0 <= mono_ns() - as_int(lease.get("heartbeat_ns")) < STALE_S * 1e9
    return fresh and is_alive(lease, default=True)


class Lease(object):
    """`lease.json`: who uses this Jetson. Taken and swept under a file lock, so two rigs cannot both get it."""

    def __init__(self, base: str) -> None:
        self.base, self.path = base, os.path.join(base, "lease.json")
        self.mine: Optional[Facts] = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        # flock, not the existence of the file: the kernel releases it whatever happens to the process.
        with open(os.path.join(self.base, "lock"), "a") as stream:
            for _ in range(100):
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EACCES):
                        raise
                    time.sleep(0.02)
            else:
                raise RunnerError("busy", "another rig has been taking or sweeping the lease for 2 s", "try again")
            yield

    def read(self) -> Optional[Facts]:
        lease = read_json(self.path)
        return lease if isinstance(lease, dict) else None

    def take(self, spec: Facts) -> Facts:
        """Sweep, then take the lease. Returns what was swept; RunnerError `busy` when a live run holds it."""
        with self.locked():
            swept = self.sweep()
            if swept["busy"]:
                raise RunnerError("busy", busy_sentence(swept["busy"]), "wait for that run, or end it on its own rig")
            mine = process_identity()
            for key in ("owner", "host", "run_id"):
                mine[key] = spec[key]
            mine["since_utc"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.mine = mine
            self._store(mine)
            return swept

    def beat(self) -> bool:
        """Renew the heartbeat. False when the lease is no longer ours."""
        lease = self.read()
        if self.mine is None or lease is None or lease.get("run_id") != self.mine["run_id"]:
            return False
        self._store(self.mine)
        return True

    def release(self) -> None:
        if self.mine is not None:
            lease = self.read()
            if lease is not None and lease.get("run_id") == self.mine["run_id"]:
                os.unlink(self.path)
            self.mine = None

    def sweep(self) -> Facts:
        """Under the lock: end stale runs and remove their files. {"busy": live lease or None, "removed", "killed"}."""
        result: Facts = {"busy": None, "removed": [], "killed": [], "kept": []}
        lease = self.read()
        if lease is not None and lease_is_live(lease):
            result["busy"] = lease
        elif os.path.exists(self.path):
            # A runner that is alive but has not beaten for STALE_S is frozen; only the very process that wrote the
            # lease is ended, never one that happens to have its pid or name.
            if lease is not None and is_alive(lease, default=False):
                os.kill(lease["pid"], signal.SIGKILL)
                result["killed"].append(lease.get("run_id"))
            os.unlink(self.path)
        runs = os.path.join(self.base, "runs")
        for name in sorted(os.listdir(runs)) if os.path.isdir(runs) else []:
            identity = read_json(os.path.join(runs, name, "pid.json"))
            live = result["busy"] is not None and result["busy"].get("run_id") == name
            if not live and name not in result["killed"] and is_alive(identity, default=False):
                live = True  # lost its lease a moment ago; it ends by itself with its next heartbeat
            if live:
                result["kept"].append(name)
            else:
                shutil.rmtree(os.path.join(runs, name), ignore_errors=True)
                result["removed"].append(name)
        if result["busy"] is None:
            for path in glob.glob(os.path.join(self.base, "runner-*.py")):
                if os.path.basename(path) != os.path.basename(__file__):
                    os.unlink(path)
        return result

    def _store(self, mine: Facts) -> None:
        mine["heartbeat_ns"] = mono_ns()
        write_json(self.path, mine)


def as_int(value: Any) -> int:
    """0 for anything else: lease files are read as they are found."""
    return value if isinstance(value, int) else 0


def busy_sentence(lease: Facts) -> str:
    return "busy: held by %s on %s (run %s) since %s" % tuple(
        lease.get(key, "?") for key in ("owner", "host", "run_id", "since_utc")
    )


# --- control: the rig's orders, heartbeat, deadline -------------------------------------------------------------------


class Control(object):
    """Reads the rig's lines, prints the heartbeat, renews the lease, and stops the run when one of them fails."""

    def __init__(self, spec: Facts, lease: Lease, input_buffer: bytes) -> None:
        self.stop_reason: Optional[str] = None
        self.stopping = threading.Event()
        self.on_stop: List[Callable[[], None]] = []
        self.orders: Deque[List[str]] = collections.deque()
        self.order_came = threading.Condition()
        self.deadline_ns = mono_ns() + int(spec["deadline_s"] * 1e9)
        self.orphaned = False  # the parent is gone or a signal said to end: nobody will say `bye`
        self.on_abandon: Callable[[], None] = lambda: None
        self.progress: Callable[[], Facts] = dict  # goes with every heartbeat
        self._lease, self._buffer = lease, b""
        self._finished = False
        # Signals reach the control thread as bytes in a pipe: a handler in the main thread could meet its own locks,
        # and would not run at all while the engine is at work.
        self._signals, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._take_orders(input_buffer)

    def start(self) -> None:
        threading.Thread(target=self._watch, name="control", daemon=True).start()

    def stop(self, reason: str) -> None:
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stopping.set()
            for wake in self.on_stop:
                wake()

    def check(self) -> None:
        if self.stop_reason is not None:
            raise Stopped()

    def next_order(self) -> List[str]:
        """The next line as words; raises Stopped."""
        with self.order_came:
            while not self.orders:
                self.check()
                self.order_came.wait(0.5)
            return self.orders.popleft()

    def finished(self) -> None:
        """The run itself is over: what stopped it no longer matters, unless nobody is there to collect."""
        self._finished = True
        self.deadline_ns = mono_ns() + int(LINGER_S * 1e9)
        if not self.orphaned:
            self.stop_reason = None
            self.stopping.clear()

    def sleep_until(self, when_ns: int) -> None:
        """Sleep, then spin the last 60 us: a plain sleep wakes about that much late."""
        while True:
            left = when_ns - mono_ns()
            if left <= 60000:
                break
            if left > 2000000:
                self.stopping.wait((left - 1500000) / 1e9)
                self.check()
            else:
                time.sleep((left - 55000) / 1e9)
        while mono_ns() < when_ns:
            pass

    def _watch(self) -> None:
        beat_ns = mono_ns()
        abandon_ns: Optional[int] = None
        while True:
            now = mono_ns()
            if now >= beat_ns:
                beat_ns = now + int(HEARTBEAT_S * 1e9)
                try:
                    held = self._lease.beat()
                except OSError:
                    held = True  # a full disk stops the run through its events, not here
                if not held:
                    self.stop("lease lost")
                say("alive", **self.progress())
            if now >= self.deadline_ns:
                self.stop("deadline")
            if self.stop_reason is not None and not self._finished:
                abandon_ns = abandon_ns or now + int(GRACE_S * 1e9)
                if now >= abandon_ns:
                    self.on_abandon()
                    os._exit(75)
            self._read(max(0.0, min(beat_ns - now, self.deadline_ns - now, 250000000) / 1e9))

    def _read(self, timeout: float) -> None:
        readable = select.select([self._signals] if self.orphaned else [self._signals, 0], [], [], timeout)[0]
        if self._signals in readable:
            number = os.read(self._signals, 1)[0]
            self.orphaned = True
            self.stop("signal %d" % number)
        if 0 not in readable:
            return
        data = os.read(0, 4096)
        if not data:
            self.orphaned = True
            self.stop("parent gone")
            return
        self._take_orders(data)

    def _take_orders(self, data: bytes) -> None:
        lines = (self._buffer + data).split(b"\n")
        self._buffer = lines.pop()
        for line in lines:
            words = line.decode("ascii", "replace").split()
            if words[:1] == ["abort"]:
                self.stop("aborted by the rig")
            elif words:
                with self.order_came:
                    self.orders.append(words)
                    self.order_came.notify_all()


def say(phase: str, **fields: Any) -> None:
    """One line to the rig. A closed pipe is the parent's end, which the control thread sees by itself."""
    fields["phase"], fields["t_ns"] = phase, mono_ns()
    # One write: lines of two threads must not mix.
    with contextlib.suppress(OSError):
        os.write(1, ("@rig " + json.dumps(fields) + "\n").encode("ascii"))


# --- engine -----------------------------------------------------------------------------------------------------------


class Engine(object):
    """A decoder-only model with KV cache in ONNX Runtime, decoded greedily. numpy arrays in and out on any provider."""

    def __init__(self, path: str) -> None:
        self.path = os.path.expanduser(path)
        started = mono_ns()
        if not os.path.isfile(self.path):
            raise RunnerError(
                "model", "there is no model file %s" % self.path, "build it with models/build.py and copy it there"
            )
        try:
            import numpy
            import onnxruntime
        except ImportError as error:
            raise RunnerError(
                "engine",
                "%s cannot import the engine: %s" % (sys.executable, error),
                "install onnxruntime and numpy for it, or name another interpreter in the bench file (jetson.python)",
            )
        self._numpy = numpy
        imported = mono_ns()
        available = onnxruntime.get_available_providers()
        wanted = "CUDAExecutionProvider"
        if wanted not in available and not on_tegra():
            wanted = "CPUExecutionProvider"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = max(1, (os.cpu_count() or 2) // 2)
        options.inter_op_num_threads = 1
        # Spinning engine threads take the cores that the receiver and the schedule need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(
                self.path,
                options,
                providers=[name for name in available if name in (wanted, "CPUExecutionProvider")],
            )
        except Exception as error:  # noqa: BLE001 - the engine has error classes of its own
            raise RunnerError("model", "the engine refuses %s: %s" % (self.path, first_line(error)))
        self._empty: Facts = {}
        for item in self._session.get_inputs():
            if item.name.startswith("past_key_values."):
                shape = [side if isinstance(side, int) else 0 for side in item.shape]
                shape[0] = 1
                self._empty[item.name] = numpy.zeros(shape, numpy.float32)
            elif item.name != "input_ids":
                raise RunnerError("model", "%s wants an input %r that the runner does not know" % (path, item.name))
        self._outputs = ["logits"] + [name.replace("past_key_values", "present") for name in self._empty]
        known = [item.name for item in self._session.get_outputs()]
        missing = [name for name in self._outputs if name not in known]
        if missing:
            raise RunnerError("model", "%s has no output %s" % (path, ", ".join(missing)))
        logits = [item for item in self._session.get_outputs() if item.name == "logits"][0]
        self.vocab = logits.shape[-1] if isinstance(logits.shape[-1], int) else 256
        used = self._session.get_providers()[0]
        self.facts = {
            "engine": "onnxruntime",
            "engine_version": onnxruntime.__version__,
            "numpy_version": numpy.__version__,
            "provider": used,
            "provider_wanted": wanted,
            "fallback": used != wanted,
            "available": available,
            "threads": options.intra_op_num_threads,
            "model": self.path,
            "model_sha256": hash_file(self.path),
            "vocab": self.vocab,
            "import_ns": imported - started,
            "load_ns": mono_ns() - imported,
        }

    def generate(self, prompt: List[int], count: int) -> Tuple[List[int], List[int], int]:
        """Decode `count` tokens after `prompt`. Returns (tokens, stamp of each token, stamp of the prefill's start)."""
        numpy = self._numpy
        started = mono_ns()
        feed = dict(self._empty)
        feed["input_ids"] = numpy.array([prompt], numpy.int64)
        tokens: List[int] = []
        stamps: List[int] = []
        for _ in range(count):
            results = self._session.run(self._outputs, feed)
            token = int(results[0][0, -1].argmax())
            tokens.append(token)
            stamps.append(mono_ns())
            feed = dict(zip(self._empty, results[1:]))
            feed["input_ids"] = numpy.array([[token]], numpy.int64)
        return tokens, stamps, started


def sensor_window(seed: int, index: int, count: int, vocab: int) -> List[int]:
    """The synthetic sensor reading of one request: a slow triangle with noise, quantised to token ids."""
    noise = random.Random(seed * 1000003 + index)
    span = max(2, vocab - 1)
    return [
        abs((index * 7 + k * 11) % (2 * span) - span) * 3 // 4 + noise.randrange(span // 4 + 1) for k in range(count)
    ]


# --- link: the datagrams ----------------------------------------------------------------------------------------------

_SO_TIMESTAMPNS, _SO_RXQ_OVFL = 35, 40  # <asm-generic/socket.h>; Python names neither
_TIMESPEC = struct.Struct("@ll")


class Link(object):
    """The socket to the board: sends with stamps, and a thread that receives, decodes, logs and counts."""

    def __init__(self, spec: Facts, events: Events, on_failure: Callable[[], None]) -> None:
        self.board = (spec["board"][0], spec["board"][1])
        self.v1 = spec["protocol"] == "token-v1"
        self.answer_tokens = spec["answer_tokens"]
        self.push = spec["mode"] == "push"
        self.boot_id = random.SystemRandom().randrange(1, 1 << 32)
        self.sequence, self.t_queued = 0, QUEUED_UNKNOWN
        self.events = events
        self.changed = threading.Condition()
        self.pending: Dict[
            int, Optional[int]
        ] = {}  # key → tokens still due (v1) or None; whoever pops a key settles that request
        self.timed_out: Set[int] = set()
        self.completed: Deque[int] = collections.deque()  # recv stamps of completed exchanges
        self.sentinel_answers: Dict[int, List[int]] = {}
        self.pushed: Set[int] = set()
        self.measuring = False  # from just before the first start sentinel
        self.boots: List[int] = []
        self.counts: Counter[str] = collections.Counter()
        self._seen: Set[Tuple[int, int]] = set()
        self._seen_order: Deque[Tuple[int, int]] = collections.deque()
        self.failure: Optional[str] = None
        self.on_failure = on_failure
        self._wake_read, self._wake_write = os.pipe()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        for option in (_SO_TIMESTAMPNS, _SO_RXQ_OVFL):
            with contextlib.suppress(OSError):  # an old kernel: the stamp or the count is then missing
                self._socket.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            self._socket.bind((spec["bind"], 0))
        except OSError as error:
            raise RunnerError(
                "network",
                "cannot bind to the bench address %s: %s" % (spec["bind"], error.strerror),
                "give that address to the Jetson's bench interface, or correct jetson.bench_address",
            )
        self.port = self._socket.getsockname()[1]
        self._socket.setblocking(False)
        self._thread = threading.Thread(target=self._receive, name="receiver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop receiving; afterwards the counts stand still."""
        os.write(self._wake_write, b"x")
        self._thread.join(2.0)
        self._socket.close()

    def key(self, request_id: int) -> int:
        return request_id & 0xFFFF if self.v1 else request_id

    def send_request(self, request_id: int, payload: bytes, t_ready: int) -> Tuple[int, int, int, int]:
        """Returns (send stamp, sent stamp, sequence, bytes)."""
        self.timed_out.discard(self.key(request_id))  # 16-bit keys come round again
        self.pending[self.key(request_id)] = self.answer_tokens if self.v1 else None
        if self.v1:
            data = encode_v1(request_id, payload)
            send = mono_ns()
        else:
            send = mono_ns()
            data = encode_v2(
                REQUEST, FIRST | LAST, request_id, self.sequence, self.boot_id, t_ready, send, self.t_queued, payload
            )
        return self._send(data, send)

    def send_sentinel(self, kind: int) -> int:
        flags = {SENTINEL_START: FIRST, SENTINEL_END: LAST}.get(kind, 0)
        send = mono_ns()
        data = encode_v2(SENTINEL, flags, 0xFFFFFFFF - kind, self.sequence, self.boot_id, 0, send, self.t_queued, b"")
        send, sent, sequence, _ = self._send(data, send)
        self.counts["sentinels_sent"] += 1
        self.events.add("sentinel", send, kind=SENTINEL_NAMES[kind], sequence=sequence, send_ns=send, sent_ns=sent)
        return send

    def _send(self, data: bytes, send: int) -> Tuple[int, int, int, int]:
        try:
            self._socket.sendto(data, self.board)
        except OSError as error:
            self.counts["send_errors"] += 1
            self.events.add("send-error", mono_ns(), errno=error.errno, text=error.strerror)
        sent = mono_ns()
        sequence, self.sequence = self.sequence, (self.sequence + 1) & 0xFFFFFFFF
        self.t_queued = min(sent - send, QUEUED_UNKNOWN - 1)
        return send, sent, sequence, len(data)

    def _receive(self) -> None:
        try:
            self._receive_all()
        except Exception as error:  # noqa: BLE001 - a thread that dies unseen would look like a silent board
            self.failure = "%s: %s" % (type(error).__name__, error)
            self.on_failure()

    def _receive_all(self) -> None:
        while True:
            try:
                data, ancillary, _, address = self._socket.recvmsg(65535, 128)
            except BlockingIOError:
                if self._wake_read in select.select([self._socket.fileno(), self._wake_read], [], [])[0]:
                    return
                continue
            except OSError as error:  # a full interface queue and the like; the next call may work
                self.counts["receive_errors"] += 1
                self.events.add("receive-error", mono_ns(), errno=error.errno, text=error.strerror)
                time.sleep(0.01)
                continue
            now, wall = mono_ns(), real_ns()
            kernel = None
            for level, kind, value in ancillary:
                if level != socket.SOL_SOCKET:
                    continue
                if kind == _SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
                    seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                    kernel = now - (wall - (seconds * 1000000000 + nanoseconds))
                elif kind == _SO_RXQ_OVFL:
                    self.counts["socket_drops"] = struct.unpack_from("@I", value)[0]
            if address != self.board:
                self.counts["strangers"] += 1
                continue
            answer = decode_v2(data)
            if answer is None and self.v1:
                answer = decode_v1(data)
            if answer is None:
                self.counts["malformed"] += 1
                self.events.add("malformed", now, kernel_ns=kernel, bytes=len(data), head=data[:16].hex())
                continue
            with self.changed:
                self._take(answer, now, kernel, len(data))
                self.changed.notify_all()

    def _take(self, answer: Datagram, now: int, kernel: Optional[int], size: int) -> None:
        if answer.boot_id and answer.boot_id not in self.boots:
            self.boots.append(answer.boot_id)
        fields: Facts = {
            "type": answer.type, "flags": answer.flags, "request_id": answer.request_id, "sequence": answer.sequence,
            "boot_id": answer.boot_id, "recv_ns": now, "kernel_ns": kernel, "t_rx_ns": answer.t_rx,
            "t_ready_ns": answer.t_ready, "t_send_ns": answer.t_send, "t_queued_ns": answer.t_queued, "bytes": size,
        }  # fmt: skip
        if answer.type == SENTINEL:
            kind = 0xFFFFFFFF - answer.request_id
            values = struct.unpack_from("<8I", answer.payload) if len(answer.payload) >= 32 else ()
            fields["kind"] = SENTINEL_NAMES.get(kind, "?")
            fields["counters"] = dict(zip(SENTINEL_COUNTERS, values))
            self.counts["sentinel_answers"] += 1
            self.sentinel_answers.setdefault(kind, []).append(now)
            self.events.add("sentinel-answer", now, **fields)
            return
        tokens = len(answer.payload) // (2 if self.v1 and not answer.boot_id else 4)
        warmup = not self.measuring if self.v1 else 0 <= answer.request_id - WARMUP_BASE < WARMUP_IDS
        duplicate = self._is_duplicate(answer)
        self.events.add("answer", now, tokens=tokens, warmup=warmup, duplicate=duplicate, **fields)
        prefix = "warmup_" if warmup else ""
        self.counts[prefix + "answers_received"] += 1
        if duplicate:
            self.counts[prefix + "duplicates"] += 1
            return
        self.counts[prefix + "answers_unique"] += 1
        if answer.type == ERROR:
            self.counts[prefix + "board_errors"] += 1
        self._settle(answer, tokens, prefix, now)

    def _settle(self, answer: Datagram, tokens: int, prefix: str, now: int) -> None:
        key = answer.request_id
        if self.push and not prefix:
            if answer.flags & LAST:
                self.pushed.add(key)
            return
        if key in self.timed_out:
            self.counts[prefix + "late"] += 1
            return
        due = self.pending.get(key, -1)
        if due == -1:
            self.counts[prefix + "unexpected"] += 1
            return
        if self.v1 and due is not None and due > tokens:
            self.pending[key] = due - tokens
            return
        if not self.v1 and answer.type == ANSWER and not answer.flags & LAST:
            return
        if self.pending.pop(key, -1) != -1:
            self.counts[prefix + "answered"] += 1
            self.completed.append(now)

    def _is_duplicate(self, answer: Datagram) -> bool:
        if not answer.boot_id:  # token-v1 numbers answers by their request: copies cannot be told apart
            return False
        identity = (answer.boot_id, answer.sequence)
        if identity in self._seen:
            return True
        self._seen.add(identity)
        self._seen_order.append(identity)
        if len(self._seen_order) > 65536:
            self._seen.discard(self._seen_order.popleft())
        return False


# --- the run ----------------------------------------------------------------------------------------------------------


class Run(object):
    """One run: engine, network, warm-up, sentinels, the load in between."""

    def __init__(self, spec: Facts, control: Control, events: Events) -> None:
        self.spec, self.control, self.events = spec, control, events
        self.engine: Optional[Engine] = None
        self.link: Any = None
        self._host_ns = mono_ns()
        self._sent: Deque[Tuple[int, int, int, bool]] = (
            collections.deque()
        )  # (key, give-up stamp, request id, warm-up) in send order

    def prepare(self) -> Facts:
        """Everything that needs no board: engine loaded and warm, socket bound."""
        self.link = Link(self.spec, self.events, lambda: self.control.stop("receiver failed"))
        self.control.on_stop.append(self._wake)
        self.control.progress = self._heartbeat
        facts = {}
        if self.spec["model"]:
            self.engine = Engine(self.spec["model"])
            started = mono_ns()
            for index in range(3):
                self._infer(-1 - index)
            facts = dict(self.engine.facts, warmup_ns=mono_ns() - started)
            self.events.add("engine", mono_ns(), **facts)
        self.control.check()
        return {"engine": facts, "port": self.link.port}

    def _heartbeat(self) -> Facts:
        """The counts for the rig; now and then the state of the machine for the events."""
        if mono_ns() - self._host_ns >= HOST_S * 1e9:
            self._host_ns = mono_ns()
            self.events.add("host", self._host_ns, when="run", **host_snapshot())
        return {"counts": dict(self.link.counts)}

    def probe(self, count: int, budget_ms: int) -> Facts:
        """Probe sentinels until `count` are answered or the budget is used up."""
        until = mono_ns() + budget_ms * 1000000
        sent = 0
        trips: List[int] = []
        while len(trips) < count and mono_ns() < until:
            before = len(self.link.sentinel_answers.get(SENTINEL_PROBE, ()))
            began = self.link.send_sentinel(SENTINEL_PROBE)
            sent += 1
            arrived = self._await_sentinel(SENTINEL_PROBE, before, min(until, began + 250000000))
            if arrived is not None:
                trips.append(arrived - began)
        return {"sent": sent, "answered": len(trips), "rtt_ns": trips}

    def execute(self) -> Dict[str, bool]:
        """Warm-up, start sentinel, load, end sentinel. Returns whether both sentinels were answered."""
        gc.collect()
        gc.disable()  # a collection in the middle of a schedule costs milliseconds
        self.events.add("scheduling", mono_ns(), policy=use_realtime_scheduling())
        self._warm_up()
        self.link.measuring = True
        answered = {"start": self._sentinel(SENTINEL_START)}
        if self.spec["mode"] == "push":
            self._listen()
        elif self.spec["every_ns"]:
            self._open_load()
        else:
            self._closed_load()
        answered["end"] = self._sentinel(SENTINEL_END)
        return answered

    def _warm_up(self) -> None:
        silent = done = 0
        for index in range(self.spec["warmup"]):
            self._exchange(WARMUP_BASE + index % WARMUP_IDS, index, None, warmup=True)
            silent = 0 if self._await_idle() else silent + 1
            done += 1
            if silent >= WARMUP_GIVE_UP:
                break
        self.link.completed.clear()
        say("warmed-up", exchanges=done, answered=self.link.counts["warmup_answered"])

    def _sentinel(self, kind: int) -> bool:
        name = SENTINEL_NAMES[kind]
        before = len(self.link.sentinel_answers.get(kind, ()))
        answered, tries = False, 0
        while not answered and tries < SENTINEL_TRIES:
            began = self.link.send_sentinel(kind)
            tries += 1
            answered = self._await_sentinel(kind, before, began + SENTINEL_INTERVAL_NS) is not None
        say(name + "-sentinel", answered=answered, tries=tries)
        return answered

    def _open_load(self) -> None:
        """Request i is due at start + i · every. Its slot is the period before: the pipeline runs as soon as the
        previous request has left, and the datagram waits for its time. A pipeline slower than the period makes sends
        late; they are never skipped and the schedule never moves."""
        every = self.spec["every_ns"]
        start = mono_ns() + every
        for index in range(self.spec["requests"]):
            self._exchange(1 + index, index, start + index * every)
            self._expire()
        self._await_idle()

    def _closed_load(self) -> None:
        """`in_flight` exchanges at a time. A request leaves `think` after the answer that made room for it, or when
        its pipeline is done. Ends early when the board has answered nothing for so long that it is gone."""
        think = self.spec["think_ns"]
        room = collections.deque([0] * self.spec["in_flight"])
        silent, heard = 0, mono_ns()
        for index in range(self.spec["requests"]):
            while not room:
                with self.link.changed:
                    if not self.link.completed:
                        self._wait_changed(self._sent[0][1] if self._sent else mono_ns())
                while self.link.completed:
                    silent, heard = 0, self.link.completed.popleft()
                    room.append(heard + think)
                lost = self._expire()
                silent += lost
                room.extend([mono_ns()] * lost)
            if silent >= LOAD_GIVE_UP * self.spec["in_flight"] and mono_ns() - heard >= self.spec["give_up_ns"]:
                self.events.add("gave-up", mono_ns(), silent=silent, heard_ns=heard)
                say("gave-up", silent=silent)
                break
            self._exchange(1 + index, index, None, not_before=room.popleft())
        self._await_idle()

    def _listen(self) -> None:
        """Push mode: the start sentinel has armed the board."""
        give_up = mono_ns() + self.spec["requests"] * (self.spec["every_ns"] or 0) + self.spec["timeout_ns"]
        while len(self.link.pushed) < self.spec["requests"] and mono_ns() < give_up:
            with self.link.changed:
                self._wait_changed(give_up)

    def _exchange(
        self, request_id: int, index: int, intended: Optional[int], not_before: int = 0, warmup: bool = False
    ) -> None:
        spec = self.spec
        self.control.check()
        pre_start = mono_ns()
        prompt = self._prompt(index)
        pre_end = mono_ns()
        tokens, stamps, prefill = self._decode(prompt)
        decode_end = stamps[-1] if stamps else pre_end
        payload = request_payload(spec["protocol"], (prompt + tokens)[-spec["prompt_tokens"] :], spec["answer_tokens"])
        post_end = mono_ns()
        self.control.sleep_until(intended or not_before)
        send, sent, sequence, size = self.link.send_request(request_id, payload, decode_end)
        self.link.counts["warmup_sent" if warmup else "requests_sent"] += 1
        self._sent.append((self.link.key(request_id), send + spec["timeout_ns"], request_id, warmup))
        fields = {
            "request_id": request_id, "sequence": sequence, "warmup": warmup, "intended_ns": intended,
            "pre_start_ns": pre_start, "pre_end_ns": pre_end, "post_end_ns": post_end, "send_ns": send,
            "sent_ns": sent, "tokens": spec["prompt_tokens"], "bytes": size,
        }  # fmt: skip
        if stamps:
            fields.update(prefill_start_ns=prefill, first_token_ns=stamps[0], decode_end_ns=decode_end, token_ns=stamps)
        self.events.add("request", send, **fields)

    def _prompt(self, index: int) -> List[int]:
        vocab = self.engine.vocab if self.engine else 256
        return sensor_window(self.spec["seed"], index, self.spec["prompt_tokens"], vocab)

    def _decode(self, prompt: List[int]) -> Tuple[List[int], List[int], int]:
        if self.engine is None or not self.spec["infer_tokens"]:
            return [], [], 0
        return self.engine.generate(prompt, self.spec["infer_tokens"])

    def _infer(self, index: int) -> None:
        self._decode(self._prompt(index))

    def _expire(self) -> int:
        """Settle requests whose time is up as lost. Returns how many."""
        now, expired = mono_ns(), 0
        while self._sent and (self._sent[0][0] not in self.link.pending or self._sent[0][1] <= now):
            key, _, request_id, warmup = self._sent.popleft()
            if self.link.pending.pop(key, -1) == -1:
                continue
            expired += 1
            self.link.timed_out.add(key)
            self.link.counts["warmup_timeouts" if warmup else "timeouts"] += 1
            self.events.add("timeout", now, request_id=request_id, warmup=warmup)
        return expired

    def _await_idle(self) -> bool:
        """Wait until every request is answered or lost. True when none was lost."""
        lost = 0
        while True:
            lost += self._expire()
            if not self._sent:
                return lost == 0
            with self.link.changed:
                if self._sent[0][0] in self.link.pending:
                    self._wait_changed(self._sent[0][1])

    def _await_sentinel(self, kind: int, before: int, until: int) -> Optional[int]:
        """The stamp of the answer after the first `before`, None at `until`."""
        with self.link.changed:
            while True:
                answers: List[int] = self.link.sentinel_answers.get(kind, [])
                if len(answers) > before:
                    return answers[before]
                if mono_ns() >= until:
                    return None
                self._wait_changed(until)

    def _wait_changed(self, until: int) -> None:
        self.control.check()
        self.link.changed.wait(max(0.0, min((until - mono_ns()) / 1e9, 0.5)))
        self.control.check()

    def _wake(self) -> None:
        # Never blocks on the condition: a signal handler may run while this very thread holds it.
        if self.link.changed.acquire(blocking=False):
            self.link.changed.notify_all()
            self.link.changed.release()


def command_run() -> int:
    os.umask(0o077)
    started = mono_ns()
    line, rest = read_first_line()
    try:
        spec = json.loads(line.decode("utf-8"))
        if not re.match(r"^\w[\w=.-]{0,199}$", spec["run_id"]):
            raise ValueError("run id %r" % spec["run_id"])
    except (ValueError, KeyError, TypeError) as error:
        say("error", code="spec", what="the spec cannot be used: %s" % first_line(error), hint="")
        return 2
    lease = Lease(HERE)
    directory = os.path.join(HERE, "runs", spec["run_id"])
    try:
        swept = lease.take(spec)
        try:
            os.makedirs(directory)
            write_json(os.path.join(directory, "pid.json"), process_identity())
            write_json(os.path.join(directory, "spec.json"), spec)
            control = Control(spec, lease, rest)
            events = Events(os.path.join(directory, "events.jsonl"), lambda: control.stop("events cannot be written"))
        except BaseException:
            lease.release()
            raise
    except RunnerError as error:
        say("error", code=error.code, what=error.what, hint=error.hint)
        return 3
    except OSError as error:
        say(
            "error", code="disk", what="cannot use the work folder %s: %s" % (HERE, error), hint="check owner and space"
        )
        return 3
    say(
        "hello", sha256=hash_file(os.path.abspath(__file__)), python=platform.python_version(), pid=os.getpid(),
        swept=swept, run_dir=directory,
    )  # fmt: skip
    control.on_abandon = lambda: flush_abandoned(events, control)
    control.start()
    try:
        status = supervise(spec, control, events, started)
        # Without a `bye` the events stay, in case somebody wants to look; the next sweep removes them.
        if linger(control):
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        lease.release()
    return status


def supervise(spec: Facts, control: Control, events: Events, started: int) -> int:
    """Run, then close the events whatever happened, and tell the rig. Returns the exit status."""
    sys.setswitchinterval(0.0002)
    run = Run(spec, control, events)
    error: Optional[RunnerError] = None
    answered: Dict[str, bool] = {}
    events.add("spec", started, spec=spec)
    events.add("host", mono_ns(), when="start", **host_snapshot())
    note_clock(events)
    try:
        ready = run.prepare()
        say("ready", since_start_ns=mono_ns() - started, **ready)
        while True:
            words = control.next_order()
            if words[0] == "go":
                break
            if words[0] == "probe":
                say("probed", **run.probe(int(words[1]), int(words[2])))
        answered = run.execute()
    except RunnerError as caught:
        error = caught
    except Stopped:
        pass
    except Exception as caught:  # noqa: BLE001 - reported to the rig with its place
        place = traceback.extract_tb(sys.exc_info()[2])[-1]
        error = RunnerError("internal", "%s: %s (%s:%s)" % (type(caught).__name__, caught, place[2], place[1]))
    if run.link is not None:
        run.link.close()
    if run.link is not None and run.link.failure is not None:
        error = RunnerError("internal", "the receiver failed with " + run.link.failure)
    reason = "error" if error is not None else control.stop_reason or "done"
    counts = dict(run.link.counts) if run.link is not None else {}
    note_clock(events)
    events.add("host", mono_ns(), when="end", **host_snapshot())
    if error is not None:
        events.add("error", mono_ns(), code=error.code, what=error.what, hint=error.hint)
    boots = run.link.boots if run.link is not None else []
    events.add("end", mono_ns(), reason=reason, counts=counts, sentinels=answered, boot_ids=boots)
    control.finished()
    try:
        receipt = events.close()
    except (OSError, RunnerError) as caught:
        receipt, events.failure = {}, events.failure or caught
    if events.failure is not None:
        what = "cannot write %s: %s" % (events.path, getattr(events.failure, "strerror", None) or events.failure)
        error = RunnerError("disk", what, "make room on the Jetson")
    if error is not None:
        say("error", code=error.code, what=error.what, hint=error.hint, events=receipt, counts=counts)
        return 1
    if reason != "done":
        say("stopped", reason=reason, events=receipt, counts=counts)
        return 1
    say("done", events=receipt, counts=counts, sentinels=answered)
    return 0


def linger(control: Control) -> bool:
    """Keep the lease until the rig says `bye`. True then, False after the rig's end or the deadline."""
    with contextlib.suppress(Stopped):
        while control.next_order()[:1] != ["bye"]:
            pass
        return True
    return False


def flush_abandoned(events: Events, control: Control) -> None:
    """The main thread did not come back within the grace (the engine holds it): close the events without it."""
    events.add("end", mono_ns(), reason=control.stop_reason, counts={}, sentinels={}, boot_ids=[])
    with contextlib.suppress(OSError, RunnerError):
        events.close(1.0)


def use_realtime_scheduling() -> str:
    """SCHED_FIFO at its lowest priority for every thread, where this user may; returns the policy in force.

    All threads or none: one that waits for its turn on a busy core while it holds the interpreter's lock would hold
    up the schedule. Without it other programs delay sends by whole time slices; the lateness in the events shows it.
    """
    try:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return "other"
    return "fifo"


def note_clock(events: Events) -> None:
    """Both clocks at once (the tighter of three tries): a step of the wall clock shows as a changed difference."""
    tries = []
    for _ in range(3):
        before, wall = mono_ns(), real_ns()
        tries.append((mono_ns() - before, before, wall))
    width, before, wall = min(tries)
    events.add("clock", before, realtime_ns=wall, width_ns=width)


def read_first_line() -> Tuple[bytes, bytes]:
    data = b""
    while b"\n" not in data:
        block = os.read(0, 65536)
        if not block:
            return data, b""
        data += block
    line, rest = data.split(b"\n", 1)
    return line, rest


# --- the machine ------------------------------------------------------------------------------------------------------


def host_snapshot() -> Facts:
    """Clocks, temperatures, throttling and memory, as far as they can be read; a fraction of a millisecond each."""
    zones: Dict[str, float] = {}
    cooling: Dict[str, Optional[str]] = {}
    for path in sorted(glob.glob(SYS + "/class/thermal/thermal_zone*")):
        value = read_number(path + "/temp")
        if value is not None and -100000 < value < 200000:
            zones[read_text(path + "/type") or os.path.basename(path)] = value / 1000.0
    for path in sorted(glob.glob(SYS + "/class/thermal/cooling_device*")):
        cooling[os.path.basename(path) + ":" + (read_text(path + "/type") or "?")] = read_text(path + "/cur_state")
    frequency = SYS + "/devices/system/cpu/cpu0/cpufreq/"
    memory = dict(re.findall(r"^(MemTotal|MemAvailable|SwapFree):\s+(\d+) kB", read_text("/proc/meminfo") or "", re.M))
    return {
        "governor": read_text(frequency + "scaling_governor"),
        "cpu_khz": read_number(frequency + "scaling_cur_freq"),
        "cpu_max_khz": read_number(frequency + "scaling_max_freq"),
        "gpu_load": gpu_load(),
        "load": list(os.getloadavg()),
        "memory_kib": {name: int(value) for name, value in memory.items()},
        "temperature_c": zones,
        "cooling": cooling,
        "power_mw": power(),
        "over_current": {path: read_text(path) for path in glob.glob(SYS + "/class/hwmon/hwmon*/oc*_event_cnt")},
    }


def gpu_load() -> Optional[int]:
    """Load of the Tegra GPU per mille; JetPack 6 keeps it below `platform`, releases before it do not."""
    known = [read_number(SYS + path) for path in ("/devices/platform/gpu.0/load", "/devices/gpu.0/load")]
    return next((value for value in known if value is not None), None)


def power() -> Dict[str, int]:
    """Milliwatts of every rail that an INA3221 watches (hwmon: in*_input mV, curr*_input mA), by its label."""
    rails: Dict[str, int] = {}
    for path in sorted(glob.glob(SYS + "/class/hwmon/hwmon*/curr[0-9]*_input")):
        current, voltage = read_number(path), read_number(path.replace("/curr", "/in"))
        if current is not None and voltage is not None:
            label = read_text(path.replace("/curr", "/in").replace("_input", "_label"))
            rails[label or "/".join(path.split("/")[-2:])] = current * voltage // 1000
    return rails


def command_state() -> int:
    """uname, versions and a snapshot, as one JSON line."""
    facts = dict(host_snapshot(), uname=list(platform.uname()[:5]), python=platform.python_version())
    facts["model"] = (read_text("/proc/device-tree/model") or "").rstrip("\0") or None
    facts["l4t"] = read_text("/etc/nv_tegra_release")
    facts["disk_free_bytes"] = shutil.disk_usage(HERE).free
    for name in ("numpy", "onnxruntime"):
        try:
            module = __import__(name)
            facts[name] = module.__version__
            if name == "onnxruntime":
                facts["providers"] = module.get_available_providers()
        except Exception as error:  # noqa: BLE001 - a broken engine is a fact here, not a failure
            facts[name] = None
            facts[name + "_error"] = first_line(error)
    say("state", **facts)
    return 0


def command_hold() -> int:
    """The lease alone, for a rig that works on this machine without a run."""
    os.umask(0o077)
    line, rest = read_first_line()
    spec = json.loads(line.decode("utf-8"))
    lease = Lease(HERE)
    try:
        swept = lease.take(spec)
    except RunnerError as error:
        say("error", code=error.code, what=error.what, hint=error.hint)
        return 3
    try:
        control = Control(spec, lease, rest)
        control.start()
        say("held", swept=swept)
        linger(control)
    finally:
        lease.release()
    return 0


def command_sweep() -> int:
    os.umask(0o077)
    lease = Lease(HERE)
    try:
        with lease.locked():
            say("swept", **lease.sweep())
    except RunnerError as error:
        say("error", code=error.code, what=error.what, hint=error.hint)
        return 3
    return 0


def on_tegra() -> bool:
    return os.path.exists("/etc/nv_tegra_release") or "jetson" in (read_text("/proc/device-tree/model") or "").lower()


def read_text(path: str) -> Optional[str]:
    try:
        with open(path, "r", errors="replace") as stream:
            return stream.read(65536).strip()
    except (OSError, UnicodeError):
        return None


def read_number(path: str) -> Optional[int]:
    value = read_text(path)
    return int(value) if value and value.lstrip("-").isdigit() else None


def read_json(path: str) -> Any:
    try:
        return json.loads(read_text(path) or "")
    except ValueError:
        return None


def write_json(path: str, value: Facts) -> None:
    """Atomic: a reader sees the old text or the new."""
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "w") as stream:
        json.dump(value, stream, indent=1, sort_keys=True)
    os.rename(part, path)


def hash_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


def main(arguments: List[str]) -> int:
    commands = {"run": command_run, "hold": command_hold, "sweep": command_sweep, "state": command_state}
    if len(arguments) != 1 or arguments[0] not in commands:
        sys.stderr.write("usage: runner.py run|hold|sweep|state\n")
        return 2
    status = commands[arguments[0]]()
    sys.stdout.flush()
    # Daemon threads may sit in the engine or in a socket; nothing is left to clean up.
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
