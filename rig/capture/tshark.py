"""tshark: dissects the few frames that a report shows, checks display filters, and is the oracle of our own reader.

It runs with a configuration directory of its own, so that nobody's preferences, disabled protocols or Decode-As change
the result, and, unless asked, with the heuristics off that take UDP payloads for QUIC, WireGuard and the like.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from rig.deadline import Deadline
from rig.errors import CaptureError, InternalError

DISSECTOR: Final = Path(__file__).parents[1] / "protocol" / "token.lua"
"""The dissector of the token protocol."""
SEPARATOR: Final = "\x1f"
AGGREGATOR: Final = "\x1e"
"""Between the values of one field."""

# UDP payloads of ports without a dissector are offered to these, on by default in 4.0; a few bytes suffice to convince
# some of them. Names that a version does not know are ignored in the configuration file.
UDP_HEURISTICS: Final = """
    adwin_config_udp applemidi_udp ar_drone_udp artnet_udp asphodel bittorrent_dht_udp caneth_udp cigi_udp
    classicstun_udp clique_rm_udp dcc_udp dcerpc_udp dcp_etsi_udp dns_udp dplay_udp dtls_udp e100_udp fortinet_sso
    giop_udp goose_udp gquic icep_udp interlink_udp json_udp jxta_udp lanforge_udp lbmr_udp lbtrm_udp lbtru_udp
    lsd_udp miop_udp mojito_udp mp2t_udp netperfmeter_udp njack_udp ocp1_udp pana_udp pathport_udp peekremote_udp
    pktgen_udp proxy_udp quic raknet_udp redbackli_udp reload_framing_udp reload_udp rftap rlm_udp rpcap_udp rpc_udp
    rtcp_udp rtp_udp rtps_udp shicp_udp sip_udp sprt_udp srt_udp stun_udp t38_udp tftp thrift_udp udt_udp waveagent_udp
    wg wol_udp zbncp_udp
"""


def read_fields(
    path: Path,
    fields: Sequence[str],
    deadline: Deadline,
    *,
    display_filter: str = "",
    options: Sequence[str] = (),
    arguments: Sequence[str] = (),
    dissector: bool = True,
    heuristics: bool = False,
    occurrence: Literal["first", "all"] = "first",
) -> list[list[str]]:
    """One list of strings per frame that passes `display_filter`, in the order of `fields`.

    occurrence: of a field that a frame has several times the first value, or all with `AGGREGATOR` between. options:
    further preferences as (`ip.defragment:FALSE`, …). arguments: any others of tshark. heuristics: also know protocols
    by their looks on ports without a dissector, as tshark does by default. Raises CaptureError when tshark fails or
    complains, InternalError when it is missing or late.
    """
    argv = [*arguments, "-r", str(path), "-T", "fields", "-E", f"separator={SEPARATOR}", "-E"]
    argv += [f"occurrence={occurrence[0]}", "-E", f"aggregator={AGGREGATOR}"]
    for field in fields:
        argv += ["-e", field]
    for option in options:
        argv += ["-o", option]
    if display_filter:
        argv += ["-Y", display_filter]
    output = _run(argv, deadline, dissector=dissector, heuristics=heuristics)
    return [line.split(SEPARATOR) for line in output.split("\n")[:-1]]  # splitlines() would split at controls too


def dissect(path: Path, frames: Sequence[int], deadline: Deadline) -> str:
    """The full dissection, as text, of a few frames by number."""
    chosen = " || ".join(f"frame.number == {number}" for number in frames)
    return _run(["-r", str(path), "-V", "-Y", chosen or "frame.number == 0"], deadline)


def filter_fault(display_filter: str, deadline: Deadline) -> str | None:
    """What is wrong with a display filter, in tshark's words; None when it is sound. The token fields are known."""
    with tempfile.NamedTemporaryFile(suffix=".pcap") as empty:
        # A filter is compiled before a file is read, so a file without frames is enough.
        empty.write(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
        empty.flush()
        try:
            _run(["-r", empty.name, "-Y", display_filter], deadline)
        except CaptureError as error:
            return error.seen or error.what
    return None


def command_line(path: Path, display_filter: str) -> str:
    """The command that shows a person the frames of a filter."""
    return shlex.join(["tshark", "-n", "-2", "-r", str(path), "-X", f"lua_script:{DISSECTOR}", "-Y", display_filter])


def version(deadline: Deadline) -> str:
    """First line of `tshark --version`."""
    return _run(["--version"], deadline, dissector=False).splitlines()[0]


def _run(arguments: Sequence[str], deadline: Deadline, *, dissector: bool = True, heuristics: bool = False) -> str:
    argv = ["tshark", "-n"]
    if dissector:
        # Two passes: a request is linked to the answer that comes after it.
        argv += ["-2", "-X", f"lua_script:{DISSECTOR}"]
    with tempfile.TemporaryDirectory(prefix="rig-wireshark-") as configuration:
        if not heuristics:
            off = "".join(f"{name},0\n" for name in UDP_HEURISTICS.split())
            Path(configuration, "heuristic_protos").write_text(off)
        environment = {
            **os.environ,
            "WIRESHARK_CONFIG_DIR": configuration,
            "LC_ALL": "C",
            # Without it Lua scripts of the user's own plug-in folder would be loaded.
            "HOME": configuration,
            "XDG_CONFIG_HOME": configuration,
        }
        try:
            answer = subprocess.run(
                [*argv, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                timeout=deadline.left(),
                check=False,
            )
        except FileNotFoundError as error:
            raise InternalError(
                "tshark is not installed", hint="sudo apt-get install --no-install-recommends tshark"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise InternalError(f"tshark did not end within {deadline.budget_s:g} s: {shlex.join(argv)}") from error
    complaints = [
        line
        for line in answer.stderr.decode("utf-8", "replace").splitlines()
        if line.strip() and not line.startswith("Running as user")
    ]
    # A script error leaves the status at 0 and shows only here.
    if answer.returncode != 0 or any("Lua:" in line for line in complaints):
        told = " ".join(line.removeprefix("tshark: ").strip() for line in complaints)
        raise CaptureError(f"tshark failed with status {answer.returncode}: {shlex.join(arguments)}", seen=told or None)
    return answer.stdout.decode("utf-8", "replace")
