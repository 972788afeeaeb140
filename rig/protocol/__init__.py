"""Wire formats of the token exchange: pure encoders and decoders, and the layers for scapy and Wireshark."""


class TokenError(ValueError):
    """A datagram or a field that is not sound. `field` names the first field that is wrong, `problem` what it holds."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
