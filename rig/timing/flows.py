"""Flows: the packets that a plan's selectors pick from a frame table, with their token headers where they have them.

Sentinels belong to no flow; they give the measured window. Error replies (token-v2 type 4) and datagrams that are no
sound token datagrams are set aside and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.model import Flow, Key
from rig.protocol import token_v2
from rig.timing.table import PROTO_TCP, PROTO_UDP, FlowKey, FrameTable
from rig.timing.tokens import CUT, REASONS, Decoded, Tokens, decode_v1, decode_v2, udp_rows
from rig.timing.window import Window, find_window


@dataclass(frozen=True)
class Packets:
    """The packets of one flow in order of capture, the whole capture long; `measured` marks those in the window.

    row i8: index into the frame table `table`; number u4: frame number; time_ns i8: capture time of the datagram's last
    fragment; sender i4: index of the flow key, one for all VLANs in which the same token datagrams appear. tokens:
    aligned with the rest, None where the selector names no protocol. source: the end that sends it (`board`, `jetson`,
    …). set_aside: reason → how many rows of the window were picked by the selector but are not packets of the flow.
    cut: how many of them only because the capture cut them. key: what `match: key` compares, where the flow has one.
    filtered: by a display filter. every: all sound token-v2 datagrams of the capture; None without token-v2. shared:
    others talk to its senders, and what these say to them is not in the flow.
    """

    name: str
    row: NDArray[np.int64]
    number: NDArray[np.uint32]
    time_ns: NDArray[np.int64]
    sender: NDArray[np.int32]
    measured: NDArray[np.bool_]
    tokens: Tokens | None
    table: FrameTable
    source: str = ""
    set_aside: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0
    key: Keys | None = None
    filtered: bool = False
    every: Tokens | None = None
    shared: bool = False

    def __len__(self) -> int:
        return len(self.row)

    @property
    def keys(self) -> Keys:
        """What `match: key` compares; needs a `key` in the flow."""
        if self.key is None:
            raise PlanError(
                f"flow `{self.name}` has no key to be matched by",
                hint="add `key: {offset: 0, bytes: 2}` or `key: {field: dns.id}` to the flow, or match by `order`",
            )
        return self.key

    @cached_property
    def senders(self) -> frozenset[int]:
        """Indices of the flow keys that occur."""
        return frozenset(np.flatnonzero(np.bincount(self.sender)).tolist())

    @cached_property
    def beside(self) -> Tokens | None:
        """Sound token-v2 datagrams of the same senders that are no packets of the flow: sentinels, error replies, what
        the selector leaves out; None without token-v2."""
        if self.every is None:
            return None
        source = self.table.ends.source
        sends = np.zeros(int(source.max(initial=-1)) + 1, np.bool_)
        sends[source[list(self.senders)]] = True
        chosen = np.zeros(len(self.table), np.bool_)
        chosen[self.row] = True
        return self.every.take(sends[source[self.table.flow[self.every.row]]] & ~chosen[self.every.row])

    @cached_property
    def stream(self) -> Stream:
        """Sequence numbers in order, copies told from originals; needs a token protocol."""
        if self.tokens is None:
            raise ValueError(f"flow {self.name} has no token protocol, so its packets have no sequence numbers")
        ends = self.table.ends
        numbering = ends.source if self.tokens.sequence_bits > 16 else ends.pair
        return Stream.of(numbering[self.sender], ends.pair[self.sender], self.tokens)


@dataclass(frozen=True)
class Keys:
    """position i8: the packets that have a key, in order; one with several values of a field as often. value i8: their
    keys; equal ones belong together."""

    position: NDArray[np.int64]
    value: NDArray[np.int64]


@dataclass(frozen=True)
class Dissected:
    """What Wireshark says of the rows of a table, as far as the plan's flows ask.

    passes: display filter → b, the row passes. fields: field → i8 (n, 2), sorted pairs of a row and a number for a
    value that the field has there (the same value has the same number in all fields).
    """

    passes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    fields: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """The sequence spaces of a flow: in token-v2 one per sending end and boot, wherever it sends to; in token-v1, where
    an answer has the number of its request, one per pair of ends.

    space i8: number of the space. towards i8: number of the space and the receiving end together, within which a
    request id is one exchange. extended i8: sequence number freed from wraps (RFC 4737 section 6: a jump of more than
    half the range is a rollover). first_copy b: no packet of the same ends, boot and number (token-v1: and the same
    payload) came before, whatever its VLAN tags. original i8: position of that first copy.
    """

    space: NDArray[np.int64]
    towards: NDArray[np.int64]
    extended: NDArray[np.int64]
    first_copy: NDArray[np.bool_]
    original: NDArray[np.int64]
    order: NDArray[np.int64]
    """Positions sorted by space, in order of arrival within each."""

    @classmethod
    def of(cls, sender: NDArray[np.int64], pair: NDArray[np.int64], tokens: Tokens) -> Stream:
        """sender: who numbers them; pair: sending and receiving end together."""
        count = len(tokens)
        space, single = _numbered((sender << 32) | tokens.boot_id)
        towards, _ = _numbered((pair << 32) | tokens.boot_id)
        order = np.arange(count) if single else np.argsort(space, kind="stable")
        extended = np.empty(count, np.int64)
        extended[order] = unwrap(tokens.sequence[order], space[order], tokens.sequence_bits)

        keys = [key for key in (tokens.content, extended, towards) if key.any()] or [extended]
        by_number = np.lexsort(keys) if len(keys) > 1 else np.argsort(keys[0], kind="stable")
        fresh = np.zeros(count, np.bool_)
        fresh[:1] = True
        for key in keys:
            fresh[1:] |= np.diff(key[by_number].view(np.int64)) != 0
        first_copy = np.empty(count, np.bool_)
        first_copy[by_number] = fresh
        original = np.empty(count, np.int64)
        if count:
            original[by_number] = by_number[np.maximum.accumulate(np.where(fresh, np.arange(count), 0))]
        return cls(space, towards, extended, first_copy, original, order)


def _numbered(value: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """(the values numbered from 0, whether there is just one)."""
    if len(value) and (value == value[0]).all():
        return np.zeros(len(value), np.int64), True
    return np.unique(value, return_inverse=True)[1].astype(np.int64), False


def unwrap(sequence: NDArray[np.uint32], space: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Sum up the signed steps from arrival to arrival; `space` is sorted, each begins anew."""
    if not len(sequence):
        return np.empty(0, np.int64)
    number = sequence.astype(np.int64)
    half = 1 << (bits - 1)
    step = ((np.diff(number) + half) & ((1 << bits) - 1)) - half
    begins = np.flatnonzero(np.diff(space)) + 1
    walked = np.concatenate(([0], np.cumsum(step)))
    heads = np.concatenate(([0], begins))
    lengths = np.diff(np.concatenate((heads, [len(number)])))
    return walked + np.repeat(number[heads] - walked[heads], lengths)


def _one_for_all_vlans(packets: Packets) -> Packets:
    """Let one flow key, the one with the fewest tags, stand for all in which the same datagrams appear.

    A mirror port may show a packet once with and once without its tag; which is first may differ by direction.
    """
    sender, pair = np.flatnonzero(np.bincount(packets.sender)), packets.table.ends.pair
    if len(np.unique(pair[sender])) == len(sender):
        return packets
    again = np.flatnonzero(~packets.stream.first_copy)
    linked = np.stack((packets.sender[again], packets.sender[packets.stream.original[again]]), axis=1)
    leads_to = list(range(len(packets.table.flows)))

    def head(index: int) -> int:
        while leads_to[index] != index:
            leads_to[index] = index = leads_to[leads_to[index]]
        return index

    for one, other in np.unique(linked[linked[:, 0] != linked[:, 1]], axis=0).tolist():
        heads = sorted((head(one), head(other)), key=lambda index: (len(packets.table.flows[index].vlans), index))
        leads_to[heads[1]] = heads[0]
    stands_for = np.array([head(index) for index in range(len(leads_to))], np.int32)
    return replace(packets, sender=stands_for[packets.sender])


class Selection:
    """A frame table with its token datagrams decoded once, from which flows are selected."""

    def __init__(self, table: FrameTable, addresses: Mapping[str, str], dissected: Dissected | None = None) -> None:
        self.table = table
        self.dissected = dissected or Dissected()
        self.addresses = dict(addresses)
        self.v2: Decoded = decode_v2(table, udp_rows(table))
        self.window: Window = find_window(table, self.v2.tokens)
        self.sentinel = np.zeros(len(table), np.bool_)
        self.sentinel[self.v2.tokens.row[self.v2.tokens.type == token_v2.SENTINEL]] = True

    def rows(self, flow: Flow) -> NDArray[np.int64]:
        """Rows whose flow key matches the selector, sentinels left out."""
        # One entry more than there are flows: index -1 of frames without a flow finds it.
        wanted = np.array([self.selects(flow, key) for key in self.table.flows] + [False], np.bool_)
        chosen = wanted[self.table.flow] & ~self.sentinel
        if flow.filter is not None:
            if flow.filter not in self.dissected.passes:
                raise PlanError(f"nobody applied the display filter `{flow.filter}` to the capture")
            chosen &= self.dissected.passes[flow.filter]
        return np.flatnonzero(chosen)

    def packets(self, name: str, flow: Flow) -> Packets:
        """The packets of one flow."""
        rows = self.rows(flow)
        if flow.protocol is None:
            return self._pack(name, flow, rows, None, {}, 0)
        if flow.protocol == "token-v1":
            decoded = decode_v1(self.table, rows)
            tokens, reason = decoded.tokens, decoded.reason
        else:
            position = np.full(len(self.table), -1, np.int64)
            position[self.v2.row] = np.arange(len(self.v2.row))
            reason = self.v2.reason[position[rows]]
            chosen = np.zeros(len(self.table), np.bool_)
            chosen[rows] = True
            tokens = self.v2.tokens.take(chosen[self.v2.tokens.row])
        measured = self.window.contains(self.table.time_ns[rows])
        set_aside = {text: int(np.count_nonzero(measured & (reason == code))) for code, text in REASONS.items()}
        is_error = tokens.type == token_v2.ERROR
        in_window = self.window.contains(self.table.time_ns[tokens.row])
        set_aside["error reply"] = int(np.count_nonzero(is_error & in_window))
        kept = tokens.take(~is_error) if is_error.any() else tokens
        cut = int(np.count_nonzero(measured & (reason == CUT)))
        packets = self._pack(name, flow, kept.row, kept, {text: n for text, n in set_aside.items() if n}, cut)
        if flow.protocol == "token-v2":
            packets = replace(packets, every=self.v2.tokens)
        return _one_for_all_vlans(packets)

    def between(self, src: str | None, dst: str | None) -> NDArray[np.bool_]:
        """Mask over `v2.tokens`: those from one named end to the other, None for any, sentinels left out (for the
        ledger)."""
        chosen = np.zeros(len(self.table), np.bool_)
        chosen[self.rows(Flow(src=src, dst=dst, protocol="token-v2"))] = True
        return chosen[self.v2.tokens.row]

    def _pack(
        self,
        name: str,
        flow: Flow,
        rows: NDArray[np.int64],
        tokens: Tokens | None,
        set_aside: Mapping[str, int],
        cut: int,
    ) -> Packets:
        time_ns = self.table.time_ns[rows]
        return Packets(
            name=name,
            row=rows,
            number=self.table.number[rows],
            time_ns=time_ns,
            sender=self.table.flow[rows],
            measured=self.window.contains(time_ns),
            tokens=tokens,
            table=self.table,
            source=self._end(flow.src),
            set_aside=set_aside,
            cut=cut,
            key=None if flow.key is None else self._keys(flow.key, rows),
            filtered=flow.filter is not None,
            shared=self._shared(flow, rows),
        )

    def _shared(self, flow: Flow, rows: NDArray[np.int64]) -> bool:
        """Whether an end talks to the senders of these rows that they would answer outside of the flow."""
        ends, keys = self.table.ends, self.table.flows
        sends = np.isin(ends.target, ends.source[np.unique(self.table.flow[rows])])
        untagged = flow.model_copy(update={"vlan": None})  # tags may differ by direction
        asked = (keys[index] for index in np.flatnonzero(sends & self._spoken).tolist())
        return not all(
            self.selects(untagged, FlowKey((), key.dst, key.src, key.proto, key.dstport, key.srcport)) for key in asked
        )

    @cached_property
    def _spoken(self) -> NDArray[np.bool_]:
        """Flow keys that have more than sentinels."""
        flow = self.table.flow[~self.sentinel & (self.table.flow >= 0)]
        spoken: NDArray[np.bool_] = np.bincount(flow, minlength=len(self.table.flows)) > 0
        return spoken

    def _keys(self, key: Key, rows: NDArray[np.int64]) -> Keys:
        if key.field is not None:
            if key.field not in self.dissected.fields:
                raise PlanError(f"nobody read the field `{key.field}` of the capture")
            row, value = self.dissected.fields[key.field].T
            position = np.searchsorted(rows, row)
            chosen = np.isin(row, rows)
            return Keys(position[chosen], value[chosen])
        assert key.bytes is not None
        held = np.minimum(self.table.payload_len[rows], self.table.payload_cap[rows]).astype(np.int64)
        position = np.flatnonzero(held >= key.offset + key.bytes)
        begin = self.table.payload_off[rows[position]].astype(np.int64) + key.offset
        octets = np.frombuffer(self.table.data, np.uint8)
        number = np.zeros(len(position), np.uint64)
        for index in range(key.bytes):
            number = (number << np.uint64(8)) | octets[begin + index]
        return Keys(position, number.view(np.int64))

    def selects(self, flow: Flow, key: FlowKey) -> bool:
        """Whether a selector picks packets of this flow key, its filter aside."""
        udp = flow.udp_srcport is not None or flow.udp_dstport is not None or flow.protocol is not None
        tcp = flow.tcp_srcport is not None or flow.tcp_dstport is not None
        if key.proto not in (PROTO_UDP, PROTO_TCP):
            return False
        if (udp and key.proto != PROTO_UDP) or (tcp and key.proto != PROTO_TCP):
            return False
        wanted = [
            (self._address(flow.src), key.src),
            (self._address(flow.dst), key.dst),
            (flow.udp_srcport if flow.udp_srcport is not None else flow.tcp_srcport, key.srcport),
            (flow.udp_dstport if flow.udp_dstport is not None else flow.tcp_dstport, key.dstport),
        ]
        if any(want is not None and want != seen for want, seen in wanted):
            return False
        return flow.vlan is None or flow.vlan in key.vlans

    def _end(self, name: str | None) -> str:
        """`board`, `jetson` or `rig`, also where the selector wrote its address."""
        return next((end for end, address in self.addresses.items() if name in (end, address)), name or "")

    def _address(self, name: str | None) -> str | None:
        return None if name is None else self.addresses.get(name, name)
