"""The AN3155 state machine alone: bytes of the application note in, events and bytes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rom_peer import RomPeer

from rig.board.flash import an3155
from rig.board.flash.an3155 import Bootloader, Done, Garbled, LocalError, Noise, Refused, State, Synced


def ready() -> Bootloader:
    rom = Bootloader()
    rom.probe()
    rom.receive(b"\x79")
    assert rom.state is State.READY
    return rom


# --- the bytes, written out from the note by hand -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        (an3155.get(), ["00ff"]),
        (an3155.get_version(), ["01fe"]),
        (an3155.get_id(), ["02fd"]),
        (an3155.read_memory(0x0800_0100, 256), ["11ee", "0800010009", "ff00"]),
        (an3155.read_memory(0x1FFF_7A10, 12), ["11ee", "1fff7a108a", "0bf4"]),
        (an3155.go(0x0800_0000), ["21de", "0800000008"]),
        (an3155.write_memory(0x0802_0000, b"\x01\x02\x03\x04"), ["31ce", "080200000a", "030102030407"]),
        (an3155.erase([0, 5]), ["43bc", "01000504"]),
        (an3155.erase(None), ["43bc", "ff00"]),
        (an3155.extended_erase([4]), ["44bb", "0000000404"]),
        (an3155.extended_erase([0x0102, 3]), ["44bb", "00010102000301"]),
        (an3155.extended_erase(None), ["44bb", "ffff00"]),
    ],
)
def test_bytes_of_each_command(command: an3155.Command, sent: list[str]) -> None:
    assert [step.send.hex() for step in command.steps] == sent


@pytest.mark.parametrize(
    "build",
    [
        lambda: an3155.read_memory(0, 0),
        lambda: an3155.read_memory(0, 257),
        lambda: an3155.write_memory(0, b""),
        lambda: an3155.write_memory(0, bytes(260)),
        lambda: an3155.write_memory(0, bytes(6)),
        lambda: an3155.write_memory(2, bytes(4)),
        lambda: an3155.go(1 << 32),
        lambda: an3155.go(-1),
        lambda: an3155.erase([256]),
        lambda: an3155.erase([]),
        lambda: an3155.extended_erase([0x10000]),
        lambda: an3155.extended_erase([]),
    ],
)
def test_command_that_the_note_does_not_allow_is_the_callers_fault(build: object) -> None:
    with pytest.raises(LocalError):
        build()  # type: ignore[operator]


# --- states -------------------------------------------------------------------------------------------------------


def test_next_step_leaves_only_after_ack() -> None:
    rom = ready()
    assert rom.send(an3155.write_memory(0x0800_0000, bytes(4))).hex() == "31ce"
    assert rom.receive(b"\x79") == (bytes.fromhex("0800000008"), [])
    assert rom.receive(b"\x79") == (bytes.fromhex("030000000003"), [])
    out, events = rom.receive(b"\x79")
    assert out == b""
    assert [type(event) for event in events] == [Done]
    assert rom.state is State.READY


def test_data_bytes_that_look_like_ack_and_nack_are_data() -> None:
    rom = ready()
    rom.send(an3155.read_memory(0, 4))
    rom.receive(b"\x79")
    rom.receive(b"\x79")
    assert rom.wanted == 1
    rom.receive(b"\x79")
    assert rom.wanted == 4
    rom.receive(b"\x1f\x79")
    assert rom.wanted == 2
    _, events = rom.receive(b"\x79\x1f")
    assert isinstance(events[0], Done)
    assert events[0].data == b"\x1f\x79\x79\x1f"


def test_get_returns_version_and_commands_without_count() -> None:
    rom = ready()
    rom.send(an3155.get())
    _, events = rom.receive(bytes.fromhex("79 03 31 00 02 11 79"))
    assert isinstance(events[0], Done)
    assert events[0].data.hex() == "31000211"


@pytest.mark.parametrize(("acks", "stage"), [(0, "command"), (1, "address"), (2, "data")])
def test_nack_names_the_step_and_leaves_the_rom_ready(acks: int, stage: str) -> None:
    rom = ready()
    rom.send(an3155.write_memory(0x0800_0000, bytes(4)))
    for _ in range(acks):
        rom.receive(b"\x79")
    _, events = rom.receive(b"\x1f")
    assert isinstance(events[0], Refused)
    assert events[0].stage == stage
    assert rom.state is State.READY


def test_any_other_byte_asks_for_a_new_synchronisation() -> None:
    rom = ready()
    rom.send(an3155.get_id())
    _, events = rom.receive(b"\x42")
    assert isinstance(events[0], Garbled)
    assert events[0].byte == 0x42
    assert rom.state is State.UNSYNCED
    with pytest.raises(LocalError):
        rom.send(an3155.get_id())


def test_silence_gives_up_the_command_under_way_only() -> None:
    rom = ready()
    assert rom.lost() is None
    rom.send(an3155.get_id())
    lost = rom.lost()
    assert lost is not None
    assert lost.byte is None
    assert rom.state is State.UNSYNCED


def test_one_command_at_a_time() -> None:
    rom = ready()
    rom.send(an3155.get())
    with pytest.raises(LocalError):
        rom.send(an3155.get())
    with pytest.raises(LocalError):
        rom.probe()


def test_ack_to_the_only_probe_is_a_fresh_rom_nack_one_in_its_command_loop() -> None:
    rom = Bootloader()
    assert rom.probe() == b"\x7f"
    assert rom.receive(b"\x79")[1] == [Synced(already=False)]
    rom = Bootloader()
    rom.probe()
    assert rom.receive(b"\x1f")[1] == [Synced(already=True)]


def test_ack_after_several_probes_needs_a_nack_to_prove_the_command_boundary() -> None:
    rom = Bootloader()
    rom.probe()
    rom.probe()
    assert rom.receive(b"\x79") == (b"", [])
    assert rom.state is State.UNSYNCED
    rom.probe()
    assert rom.receive(b"\x1f")[1] == [Synced(already=True)]


def test_bytes_before_any_probe_are_noise_whatever_they_are() -> None:
    assert Bootloader().receive(b"\x79\x1fabc")[1] == [Noise(b"\x79\x1fabc")]


# --- fuzz ---------------------------------------------------------------------------------------------------------

COMMANDS = st.one_of(
    st.just(an3155.get()),
    st.just(an3155.get_version()),
    st.just(an3155.get_id()),
    st.builds(an3155.read_memory, st.integers(0, 0xFFFF_FFFF), st.integers(1, 256)),
    st.builds(
        an3155.write_memory,
        st.integers(0, 0x3FFF_FFFF).map(lambda w: w * 4),
        st.integers(1, 64).map(lambda n: bytes(n * 4)),
    ),
    st.builds(an3155.extended_erase, st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=20)),
)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=300), st.just(b"\x79"), st.just(b"\x1f"), COMMANDS, st.just("probe"), st.just("lost")
        )
    )
)
def test_hostile_bytes_never_break_the_machine(script: list[object]) -> None:
    rom = Bootloader()
    for item in script:
        if isinstance(item, bytes):
            before = rom.state
            out, events = rom.receive(item)
            assert before is State.BUSY or not out
            assert all(isinstance(event, Synced | Noise | Done | Refused | Garbled) for event in events)
        elif item == "lost":
            rom.lost()
        elif item == "probe":
            if rom.state is not State.BUSY:
                rom.probe()
        elif rom.state is State.READY:
            assert isinstance(item, an3155.Command)
            rom.send(item)
        assert 1 <= rom.wanted <= 256


@given(st.binary(max_size=400), st.lists(COMMANDS, max_size=6), st.data())
def test_chunking_of_the_same_bytes_changes_nothing(
    stream: bytes, commands: list[an3155.Command], data: st.DataObject
) -> None:
    def play(chunks: list[bytes]) -> tuple[list[object], bytes]:
        rom = ready()
        seen: list[object] = []
        sent = rom.send(commands[0]) if commands else b""
        for chunk in chunks:
            out, events = rom.receive(chunk)
            sent += out
            for event in events:
                if isinstance(event, Noise):
                    seen += [Noise(bytes([byte])) for byte in event.data]
                else:
                    seen.append(event)
        return seen, sent

    cut = data.draw(st.integers(0, len(stream)))
    assert play([stream]) == play([stream[:cut], stream[cut:]]) == play([bytes([byte]) for byte in stream])


@given(st.lists(COMMANDS, max_size=8), st.integers(1, 300))
def test_every_command_ends_against_an_independent_rom(commands: list[an3155.Command], chunk: int) -> None:
    peer, rom = RomPeer(), Bootloader()
    wire = peer.feed(rom.probe())
    assert rom.receive(wire)[1] == [Synced(already=False)]
    for command in commands:
        wire = peer.feed(rom.send(command))
        events: list[an3155.Event] = []
        while wire:
            piece, wire = wire[:chunk], wire[chunk:]
            out, more = rom.receive(piece)
            events += more
            wire += peer.feed(out)
        assert [type(event) for event in events] in ([Done], [Refused])
        assert rom.state is State.READY
