"""The whole emulated bench: what is in it, and what its lines, link and relay do."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest_emulation import bench_file

from rig.bench.model import Board, BenchFile, CapturePoint, Emulation, Identity, Serial
from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench, open_bench
from rig.errors import BenchError, InternalError
from rig.plan.model import Impairment

pytestmark = pytest.mark.bench
SECONDS = Deadline.after
