"""Is the board that booted the one the bench file describes, and does it run what was flashed? Pure comparisons."""

from __future__ import annotations

from rig.bench.model import Identity
from rig.board.events import Boot
from rig.board.image import Image

OWN_BANNER = b"rig-fw "
"""Every image of this project carries the first word of its banner."""
SHORT_HASH = 7
"""Hex digits from which on the beginning of a build id stands for the whole, as git abbreviates."""
LEAST_TEXT = 4
"""A build text shorter than this is found in any image by chance and proves nothing."""


def announces_itself(image: Image) -> bool:
    """True for an image that prints this project's banner."""
    return OWN_BANNER in image.flat


def image_faults(boot: Boot, image: Image) -> list[str]:
    """Why this project's banner disproves the image; empty when it fits, or when one side has no build id."""
    if boot.build is None or image.build_id is None or boot.build == image.build_id:
        return []
    return [f"it runs build {boot.build}, the image {image.path.name} is build {image.build_id}"]


def image_proof(boot: Boot, image: Image, read_back: bool) -> str | None:
    """What proves that the board runs `image`, in words; None when nothing does.

    A banner proves it with the image's GNU build id, whole or abbreviated, or with a text that stands in the image (a
    version string that it prints). read_back: the flash was compared with the image in this run.
    """
    if boot.build is not None and shows_build(boot.build, image):
        return f"build {boot.build} in its banner"
    if not read_back:
        return None
    if boot.build is not None and len(boot.build) >= LEAST_TEXT:
        return f"flash read back (the banner's build {boot.build} stands nowhere in the image)"
    return "flash read back"


def shows_build(shown: str, image: Image) -> bool:
    """True when `shown`, from a banner, belongs to this image."""
    known = image.build_id
    if known is not None and (shown == known or (len(shown) >= SHORT_HASH and known.startswith(shown.lower()))):
        return True
    return len(shown) >= LEAST_TEXT and shown.encode("latin-1", "replace") in image.flat


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
