"""Builds models/build/sensor-lm.onnx, the small language model of the emulated Jetson, and a card that describes it.

LLaMA architecture: RMSNorm, rotary position embedding (halves rotated, as in Hugging Face's LlamaModel), grouped-query
attention, SwiGLU, KV cache as inputs and outputs. The weights are random, drawn from a fixed seed: the model does real
work of a real shape, and what it says means nothing. Opset 13 with primitive operators only, so that the ONNX Runtime
of JetPack 4 loads it too.

The bytes are a pure function of this file: weights come from SHA-256 in counter mode, not from a library's generator.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "sensor-lm"
SEED = 20260901
VOCAB, DIM, HEADS, KV_HEADS, LAYERS, FFN = 512, 96, 6, 2, 4, 256
HEAD_DIM = DIM // HEADS
GROUP = HEADS // KV_HEADS
CONTEXT = 2048
ROPE_THETA = 10_000.0
NORM_EPS = 1e-5
OPSET, IR_VERSION = 13, 7

BUILD_DIR = Path(__file__).resolve().parent / "build"

Array = NDArray[np.float32]


def weight_shapes() -> dict[str, tuple[int, ...]]:
    """Name → shape of every trained tensor. Matrices are [in, out]; `x @ w`."""
    shapes: dict[str, tuple[int, ...]] = {"embed": (VOCAB, DIM)}
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        shapes |= {
            prefix + "attn_norm": (DIM,),
            prefix + "wq": (DIM, HEADS * HEAD_DIM),
            prefix + "wk": (DIM, KV_HEADS * HEAD_DIM),
            prefix + "wv": (DIM, KV_HEADS * HEAD_DIM),
            prefix + "wo": (HEADS * HEAD_DIM, DIM),
            prefix + "ffn_norm": (DIM,),
            prefix + "w_gate": (DIM, FFN),
            prefix + "w_up": (DIM, FFN),
            prefix + "w_down": (FFN, DIM),
        }
    return shapes | {"norm": (DIM,), "lm_head": (DIM, VOCAB)}


def make_weights(seed: int = SEED) -> dict[str, Array]:
    """The weights: norms are 1, matrices uniform with variance 1/in (embedding: variance 1)."""
    weights: dict[str, Array] = {}
    for name, shape in weight_shapes().items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, np.float32)
            continue
        fan_in = 1 if name == "embed" else shape[0]
        scale = np.float32(math.sqrt(3.0 / fan_in))
        weights[name] = (_uniform(f"{seed}/{name}", math.prod(shape)) * scale).reshape(shape)
    return weights


def rope_tables() -> tuple[Array, Array]:
    """cos and sin of position × frequency, each [CONTEXT, HEAD_DIM / 2]."""
    half = HEAD_DIM // 2
    rates = [ROPE_THETA ** (-index / half) for index in range(half)]
    angles = [[position * rate for rate in rates] for position in range(CONTEXT)]
    cos = np.array([[math.cos(angle) for angle in row] for row in angles], np.float32)
    sin = np.array([[math.sin(angle) for angle in row] for row in angles], np.float32)
    return cos, sin


def build_model(weights: dict[str, Array]) -> bytes:
    """The ONNX model, serialized.

    Inputs: input_ids i64 [1, T]; past_key_values.<layer>.key|value f32 [1, KV_HEADS, P, HEAD_DIM], P may be 0.
    Outputs: logits f32 [1, T, VOCAB]; present.<layer>.key|value f32 [1, KV_HEADS, P + T, HEAD_DIM].
    Positions follow from P; P + T is at most CONTEXT.
    """
    import onnx
    from onnx import TensorProto, helper

    graph = _Graph(weights)
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "T"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "T", VOCAB])]

    zero, one = graph.ints("zero", 0), graph.ints("one", 1)
    past_len = graph.op("Gather", graph.op("Shape", "past_key_values.0.key"), graph.ints("two", 2), axis=0)
    new_len = graph.op("Gather", graph.op("Shape", "input_ids"), one, axis=0)
    total = graph.op("Add", past_len, new_len)
    positions = graph.op("Range", past_len, total, one)
    cos_table, sin_table = rope_tables()
    cos = graph.op("Gather", graph.floats("rope_cos", cos_table), positions, axis=0)
    sin = graph.op("Gather", graph.floats("rope_sin", sin_table), positions, axis=0)
    column = graph.op("Unsqueeze", positions, graph.ints("axis_last", [-1]))
    visible = graph.op("LessOrEqual", graph.op("Range", zero, total, one), column)  # [T, P + T]
    mask = graph.op("Where", visible, graph.floats("f_zero", 0.0), graph.floats("f_hidden", -1e9))

    x = graph.op("Gather", "embed", "input_ids", axis=0)
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        normed = graph.rms_norm(x, prefix + "attn_norm")
        query = graph.rope(graph.heads(graph.op("MatMul", normed, prefix + "wq"), HEADS), cos, sin)
        key = graph.rope(graph.heads(graph.op("MatMul", normed, prefix + "wk"), KV_HEADS), cos, sin)
        value = graph.heads(graph.op("MatMul", normed, prefix + "wv"), KV_HEADS)
        present: list[str] = []
        for kind, new in (("key", key), ("value", value)):
            past, name = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, [1, KV_HEADS, "P", HEAD_DIM]))
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, KV_HEADS, "S", HEAD_DIM]))
            present.append(graph.op("Concat", past, new, axis=2, output=name))
        x = graph.op("Add", x, graph.attention(query, present[0], present[1], mask, prefix + "wo"))
        normed = graph.rms_norm(x, prefix + "ffn_norm")
        gate = graph.op("MatMul", normed, prefix + "w_gate")
        silu = graph.op("Mul", gate, graph.op("Sigmoid", gate))
        hidden = graph.op("Mul", silu, graph.op("MatMul", normed, prefix + "w_up"))
        x = graph.op("Add", x, graph.op("MatMul", hidden, prefix + "w_down"))
    graph.op("MatMul", graph.rms_norm(x, "norm"), "lm_head", output="logits")

    model = helper.make_model(
        helper.make_graph(graph.nodes, NAME, inputs, outputs, graph.initializers),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="rig",
    )
    helper.set_model_props(model, {"weights": f"random, seed {SEED}", "architecture": "llama"})
    onnx.checker.check_model(model, full_check=True)
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def make_card(model: bytes) -> dict[str, Any]:
    """What a reader or a run record needs to know about the model file."""
    return {
        "name": NAME,
        "sha256": hashlib.sha256(model).hexdigest(),
        "bytes": len(model),
        "architecture": "llama",
        "weights": "random from a fixed seed, not trained",
        "seed": SEED,
        "parameters": sum(math.prod(shape) for shape in weight_shapes().values()),
        "vocab": VOCAB,
        "dim": DIM,
        "heads": HEADS,
        "kv_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "layers": LAYERS,
        "ffn": FFN,
        "context": CONTEXT,
        "rope_theta": ROPE_THETA,
        "norm_eps": NORM_EPS,
        "precision": "fp32",
        "opset": OPSET,
        "recipe_sha256": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
    }


def build(directory: Path = BUILD_DIR) -> Path:
    """Write model and card into `directory` unless both are there and fit this recipe. Returns the model's path."""
    path, card_path = directory / f"{NAME}.onnx", directory / f"{NAME}.json"
    if _is_current(path, card_path):
        return path
    directory.mkdir(parents=True, exist_ok=True)
    model = build_model(make_weights())
    _write_atomically(path, model)
    _write_atomically(card_path, (json.dumps(make_card(model), indent=2) + "\n").encode())
    return path


class _Graph:
    """Collects nodes and initializers; each method returns the name of the tensor that it made."""

    def __init__(self, weights: dict[str, Array]) -> None:
        from onnx import numpy_helper

        self._to_tensor = numpy_helper.from_array
        self.nodes: list[Any] = []
        self.initializers: list[Any] = [self._to_tensor(array, name) for name, array in weights.items()]

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{len(self.nodes)}", **attributes))
        return name

    def ints(self, name: str, value: int | list[int]) -> str:
        return self._constant(name, np.array(value, np.int64))

    def floats(self, name: str, value: float | Array) -> str:
        return self._constant(name, np.asarray(value, np.float32))

    def rms_norm(self, x: str, weight: str) -> str:
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.floats("norm_eps", NORM_EPS)))
        return self.op("Mul", self.op("Div", x, root), weight)

    def heads(self, x: str, count: int) -> str:
        """[1, T, count · HEAD_DIM] → [1, count, T, HEAD_DIM]."""
        split = self.op("Reshape", x, self.ints(f"split_{count}", [0, -1, count, HEAD_DIM]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def rope(self, x: str, cos: str, sin: str) -> str:
        """Rotate the pairs (i, i + HEAD_DIM / 2) of [1, heads, T, HEAD_DIM] by their position's angle."""
        half = HEAD_DIM // 2
        low, middle, high = self.ints("cut_0", [0]), self.ints("cut_half", [half]), self.ints("cut_end", [HEAD_DIM])
        axis = self.ints("cut_axis", [3])
        left = self.op("Slice", x, low, middle, axis)
        right = self.op("Slice", x, middle, high, axis)
        new_left = self.op("Sub", self.op("Mul", left, cos), self.op("Mul", right, sin))
        new_right = self.op("Add", self.op("Mul", right, cos), self.op("Mul", left, sin))
        return self.op("Concat", new_left, new_right, axis=3)

    def attention(self, query: str, key: str, value: str, mask: str, wo: str) -> str:
        """Query heads share their group's key and value by broadcasting; nothing is repeated in memory."""
        grouped = self.op("Reshape", query, self.ints("group", [0, KV_HEADS, GROUP, -1, HEAD_DIM]))
        axis = self.ints("group_axis", [2])
        key_t = self.op("Transpose", self.op("Unsqueeze", key, axis), perm=[0, 1, 2, 4, 3])
        scale = self.floats("scale", 1.0 / math.sqrt(HEAD_DIM))
        scores = self.op("Add", self.op("Mul", self.op("MatMul", grouped, key_t), scale), mask)
        weighted = self.op("MatMul", self.op("Softmax", scores, axis=-1), self.op("Unsqueeze", value, axis))
        heads = self.op("Reshape", weighted, self.ints("ungroup", [0, HEADS, -1, HEAD_DIM]))
        joined = self.op("Transpose", heads, perm=[0, 2, 1, 3])
        return self.op("MatMul", self.op("Reshape", joined, self.ints("join", [0, -1, HEADS * HEAD_DIM])), wo)

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        if all(tensor.name != name for tensor in self.initializers):
            self.initializers.append(self._to_tensor(array, name))
        return name


def _uniform(key: str, count: int) -> Array:
    """`count` floats in [-1, 1), multiples of 2^-23, from SHA-256(key/block)."""
    blocks = (hashlib.sha256(f"{key}/{block}".encode()).digest() for block in range((count + 7) // 8))
    words = np.frombuffer(b"".join(blocks), "<u4")[:count]
    return ((words >> 8).astype(np.float32) * np.float32(2.0**-23)) - np.float32(1.0)


def _is_current(path: Path, card_path: Path) -> bool:
    try:
        card = json.loads(card_path.read_text())
        model = path.read_bytes()
    except (OSError, ValueError):
        return False
    return bool(
        card.get("sha256") == hashlib.sha256(model).hexdigest()
        and card.get("recipe_sha256") == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    )


def _write_atomically(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
