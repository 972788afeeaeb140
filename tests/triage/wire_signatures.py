"""Captures with a known cause: the wire signatures that triage must tell apart.

Every cause is one function that says what happens to which datagram.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from wire_captures import BOARD, JETSON, MS, TURN, US, Fate, S, Wire, talk


def healthy(wire: Wire) -> None:
    talk(wire, 200)


def healthy_slow_host(wire: Wire) -> None:
    """A machine that is busy: now and then everything takes a few milliseconds more."""
    talk(
        wire,
        300,
        lambda i, at: Fate(there=int(wire.rng.pareto(2.5) * 200 * US), hold=int(wire.rng.pareto(3) * 60 * US)),
    )


def arp_cold_burst(wire: Wire) -> None:
    """V01: of a burst to an unresolved peer only the last datagram leaves, again after every long pause."""
    wire.sentinel(0, 3)
    wire.sentinel(5 * MS, 1)
    for burst in range(5):
        begin = 20 * MS + burst * 301 * S
        wire.request(begin, burst + 1, 96)
        received = begin + wire.noise()
        ready = received + TURN
        wire.arp(ready + 60 * US, 1, BOARD, JETSON)
        wire.arp(ready + 900 * US, 2, JETSON, BOARD)
        for part in range(6):
            sent = ready + 20 * US + part * 30 * US
            seen = ready + 950 * US if part == 5 else None
            wire.answer(
                sent, seen, burst + 1, received=received, ready=ready, first=part == 0, last=part == 5, start=16 * part
            )
    wire.sentinel(20 * MS + 5 * 301 * S, 2)


def arp_slow_reply(wire: Wire) -> None:
    """V02: the first datagram waits for ARP, the rest are as always."""
    asked_at = 10 * MS

    def fate(i: int, at: int) -> Fate:
        if i == 0:
            wire.arp(at + TURN + 120 * US, 1, BOARD, JETSON)
            wire.arp(at + TURN + 120 * US + 18 * MS, 2, JETSON, BOARD)
            return Fate(hold=18 * MS + 100 * US)
        return Fate()

    talk(wire, 120, fate, times=[asked_at + 30 * MS * i for i in range(120)])


def fragment_first_lost(wire: Wire) -> None:
    """V03: of fragmented datagrams only the last fragment leaves."""

    def fate(i: int, at: int) -> Fate:
        if i % 40 == 3:
            wire.board_sequence += 1
            wire.ip(at + 3 * MS, BOARD, JETSON, 17, bytes(300), fragment=185)
            return Fate()
        return Fate()

    talk(wire, 160, fate)


def oversize(wire: Wire) -> None:
    """V04: every answer is a few bytes too long for one frame."""
    talk(wire, 120, lambda i, at: Fate(tokens=358))


def ref_reuse(wire: Wire) -> None:
    """V05: n is missing and n+1 comes twice."""
    talk(wire, 240, lambda i, at: Fate(lost_out=i % 30 == 10, times=2 if i % 30 == 11 else 1))


def dcache_stale(wire: Wire) -> None:
    """V06: a cache line of an older packet in the payload, UDP checksum by hardware and right."""

    def spoil(payload: bytes) -> bytes:
        return payload[:76] + bytes(reversed(payload[76:108])) + payload[108:]

    talk(wire, 240, lambda i, at: Fate(spoil=spoil if i % 25 == 7 else None, tokens=32))


def descriptors_leak(wire: Wire) -> None:
    """V07: after as many frames as the ring has descriptors, silence."""
    talk(wire, 80, lambda i, at: Fate(lost_out=i >= 28))
    del wire.frames[-1:]


def kick_lost(wire: Wire) -> None:
    """V08: a frame stays until the next send."""
    period = 8 * MS
    late = set(np.flatnonzero(wire.rng.random(240) < 0.08))
    talk(wire, 240, lambda i, at: Fate(hold=period - 40 * US if i in late else 0), every=period)


def semaphore_block(wire: Wire) -> None:
    """V09: some sends wait for a time-out of 10 ms."""
    late = set(np.flatnonzero(wire.rng.random(300) < 0.08))
    talk(wire, 300, lambda i, at: Fate(hold=10 * MS if i in late else 0), every=25 * MS)


def tcpip_starved(wire: Wire) -> None:
    """V10: what was sent leaves when the inference, which grows with the tokens, lets the stack run."""
    sizes = wire.rng.integers(8, 300, 200)
    talk(wire, 200, lambda i, at: Fate(hold=int(sizes[i]) * 61 * US, tokens=int(sizes[i])), every=40 * MS)


def receive_interrupt_missed(wire: Wire) -> None:
    """V11: a request is taken in when the next one arrives."""
    period = 10 * MS
    talk(wire, 240, lambda i, at: Fate(there=period + 20 * US if i % 9 == 4 else 0), every=period)


def uart_log(wire: Wire) -> None:
    """V12: every byte of the datagram is logged at 115200 baud."""
    sizes = wire.rng.integers(8, 200, 150)
    talk(
        wire,
        150,
        lambda i, at: Fate(hold=int((94 + 4 * sizes[i]) * 10 * S / 115_200), tokens=int(sizes[i])),
        every=120 * MS,
    )


def phy_poll(wire: Wire) -> None:
    """V13: once a second something stalls for 6 ms."""

    def fate(i: int, at: int) -> Fate:
        phase = (at + 2 * MS) % S
        return Fate(hold=6 * MS if phase < 20 * MS else 0)

    talk(wire, 500, fate, every=20 * MS)


def eee_wake(wire: Wire) -> None:
    """V14: the first frame after a pause is late."""
    times = [10 * MS + burst * 900 * MS + i * 6 * MS for burst in range(10) for i in range(15)]
    talk(wire, len(times), lambda i, at: Fate(hold=9 * MS if i % 15 == 0 else 0), times=times)


def pool_exhausted(wire: Wire) -> None:
    """V15: of a burst of twelve the first eight leave."""
    for i in range(3):
        wire.sentinel(i * MS, 3)
    wire.sentinel(5 * MS, 1)
    for number in range(1, 31):
        begin = number * 30 * MS
        wire.request(begin, number, 16 * 12)
        received = begin + wire.noise()
        ready = received + TURN
        parts = 12 if number % 3 else 6
        for part in range(parts):
            sent = ready + part * 40 * US
            seen = None if part >= 8 else sent + wire.noise() + part * 20 * US
            wire.answer(
                sent,
                seen,
                number,
                received=received,
                ready=ready,
                first=part == 0,
                last=part == parts - 1,
                start=16 * part,
            )
    wire.sentinel(S, 2)


def context_race(wire: Wire) -> None:
    """V17: datagrams are damaged now and then."""

    def spoil(payload: bytes) -> bytes:
        return payload[:20] + bytes(4) + payload[24:]

    talk(wire, 300, lambda i, at: Fate(spoil=spoil if wire.rng.random() < 0.02 or i == 9 else None))


def poll_tick(wire: Wire) -> None:
    """V18: what arrives is seen at the next tick of 5 ms."""
    talk(wire, 250, lambda i, at: Fate(there=int(wire.rng.uniform(0, 5 * MS))), every=11 * MS)


def sent_twice(wire: Wire) -> None:
    """V19: every frame of the board twice."""
    talk(wire, 150, lambda i, at: Fate(times=2))


def stall_dead(wire: Wire) -> None:
    """V20: it stops for good in the middle."""
    talk(wire, 150, lambda i, at: Fate(lost_out=i >= 90))
    del wire.frames[-1:]


def ok_but_not_sent(wire: Wire) -> None:
    """V21: the sequence goes on, the frame is not there."""
    lost = set(np.flatnonzero(wire.rng.random(300) < 0.05)) | {17}
    talk(wire, 300, lambda i, at: Fate(lost_out=i in lost))


def batch_hold(wire: Wire) -> None:
    """V22: tokens are sent one by one and leave four at a time."""
    for i in range(3):
        wire.sentinel(i * MS, 3)
    wire.sentinel(5 * MS, 1)
    for number in range(1, 16):
        begin = number * 60 * MS
        wire.request(begin, number, 16)
        received = begin + wire.noise()
        ready = received + TURN
        for part in range(16):
            sent = ready + part * 2 * MS
            leaves = ready + (part // 4 * 4 + 3) * 2 * MS
            wire.answer(
                sent, leaves + 40 * US + part % 4 * 15 * US, number, received=received, ready=ready, first=part == 0,
                last=part == 15, tokens=1, start=part,
            )  # fmt: skip
    wire.sentinel(16 * 60 * MS, 2)


def lost_requests(wire: Wire) -> None:
    lost = set(np.flatnonzero(wire.rng.random(300) < 0.05)) | {17}
    talk(wire, 300, lambda i, at: Fate(lost_in=i in lost))


def unreachable(wire: Wire) -> None:
    """Nobody listens: the board's stack says so."""

    def fate(i: int, at: int) -> Fate:
        quoted = bytes.fromhex("4500002000000000401100000a4d00140a4d000a9c40138d000c0000")
        wire.ip(at + 200 * US, BOARD, JETSON, 1, struct.pack(">BBHI", 3, 3, 0, 0) + quoted)
        return Fate(lost_in=True)

    talk(wire, 60, fate)


def clock_stepped(wire: Wire) -> None:
    talk(wire, 200)
    wire.frames = [(at + (12 * MS if at > 900 * MS else 0), frame) for at, frame in wire.frames]


def capture_lost(wire: Wire) -> None:
    talk(wire, 250)
    kept = wire.rng.random(len(wire.frames)) > 0.04
    wire.frames = [one for i, one in enumerate(wire.frames) if kept[i] or i < 10]


def rebooted(wire: Wire) -> None:
    """It restarts in the middle: silence, then a new boot id."""

    def fate(i: int, at: int) -> Fate:
        if i == 70:
            wire.boot, wire.board_sequence = 0xB008, 0
        return Fate(lost_in=60 <= i < 70)

    talk(wire, 150, fate)


SIGNATURES: dict[str, tuple[Callable[[Wire], None], str]] = {
    "healthy": (healthy, "none"),
    "healthy on a busy host": (healthy_slow_host, "none"),
    "V01 arp_cold_burst": (arp_cold_burst, "arp-cold-burst"),
    "V02 arp_slow_reply": (arp_slow_reply, "arp-slow-reply"),
    "V03 frag_first_lost": (fragment_first_lost, "fragment-lost"),
    "V04 oversize_1499": (oversize, "oversize-datagrams"),
    "V05 ref_reuse_before_dma": (ref_reuse, "tx-buffer-reused"),
    "V06 dcache_stale": (dcache_stale, "stale-payload"),
    "V07 tx_desc_leak": (descriptors_leak, "board-stopped"),
    "V08 tx_kick_lost": (kick_lost, "tx-kick-lost"),
    "V09 tx_sem_block": (semaphore_block, "tx-wait-quantised"),
    "V10 tcpip_starved": (tcpip_starved, "tx-cost-per-byte"),
    "V11 rx_irq_missed": (receive_interrupt_missed, "rx-interrupt-missed"),
    "V12 uart_log_block": (uart_log, "tx-cost-per-byte"),
    "V13 phy_mdio_poll": (phy_poll, "board-periodic-stall"),
    "V14 eee_wake": (eee_wake, "wakes-slowly"),
    "V15 pool_exhausted": (pool_exhausted, "tx-pool-exhausted"),
    "V17 context_race": (context_race, "corrupt-datagrams"),
    "V18 poll_tick": (poll_tick, "path-jitter-to-board"),
    "V19 tx_dup": (sent_twice, "board-sends-twice"),
    "V20 tx_stall_slow_peer": (stall_dead, "board-stopped"),
    "V21 ok_but_not_sent": (ok_but_not_sent, "path-loss-from-board"),
    "V22 batch_hold": (batch_hold, "tx-batched"),
    "requests lost in the link": (lost_requests, "path-loss-to-board"),
    "nobody listens": (unreachable, "port-unreachable"),
    "clock stepped": (clock_stepped, "clock-step"),
    "capture lost frames": (capture_lost, "capture-loss"),
    "board restarted": (rebooted, "board-crash"),
}
"""What happens → (how it is made, the cause whose wire picture must come first)."""


def make(name: str, seed: int, path: Path) -> Path:
    """Write the capture of one signature."""
    wire = Wire(seed)
    SIGNATURES[name][0](wire)
    return wire.write(path)
