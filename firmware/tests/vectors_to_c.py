"""Turns the shared test vectors of token-v2 (JSON) into a C header: `vectors_to_c.py token_v2.json > vectors.h`."""

import json
import sys
from pathlib import Path

FIELDS = ("type", "flags", "request_id", "sequence", "boot_id", "payload_length", "t_rx_ns", "t_ready_ns", "t_send_ns")


def main() -> None:
    vectors = json.loads(Path(sys.argv[1]).read_text())
    print("static const struct { const char *name; struct token_v2_header header; uint8_t bytes[52]; } vectors[] = {")
    for vector in vectors:
        values = ", ".join(f".{name} = {vector['fields'][name]}u" for name in (*FIELDS, "prev_queued_ns"))
        data = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(vector["header_hex"]))
        print(f'  {{"{vector["name"]}", {{{values}}}, {{{data}}}}},')
    print("};")


main()
