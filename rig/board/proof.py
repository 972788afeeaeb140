"""Is the board that booted the one the bench file describes, and does it run what was flashed? Pure comparisons."""

from __future__ import annotations

from rig.bench.model import Identity
from rig.board.events import Boot
from rig.board.image import Image

OWN_BANNER = b"rig-fw "
"""Every image of this project carries the first word of its banner."""


def announces_itself(image: Image) -> bool:
    """True for an image that prints this project's banner."""
    return OWN_BANNER in image.flat


def image_faults(boot: Boot, image: Image) -> list[str]:
    """Why the banner's build id disproves the image; empty when it fits, or when one side has none."""
    if boot.build is None or image.build_id is None or boot.build == image.build_id:
        return []
    return [f"it runs build {boot.build}, the image {image.path.name} is build {image.build_id}"]


def identity_faults(boot: Boot, identity: Identity) -> list[str]:
    """Differences between the banner and the bench file, as clauses; only what the banner shows is compared."""
    state = boot.fields.get("identity", "ok")
    if state != "ok":
        return [f"its identity block is {state}"]
    expected = {"name": identity.name, "mac": identity.mac, "ip": identity.address, "port": str(identity.port)}
    return [
        f"its {key} is {boot.fields[key]}, the bench file says {value}"
        for key, value in expected.items()
        if key in boot.fields and boot.fields[key].lower() != value.lower()
    ]
