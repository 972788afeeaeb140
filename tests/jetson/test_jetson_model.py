"""The model that models/build.py makes: the same bytes every time, and right by two independent computations."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

RECIPE = Path(__file__).resolve().parents[2] / "models" / "build.py"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    pytest.importorskip("onnx")
    spec = importlib.util.spec_from_file_location("rig_model_recipe", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def engine(model: Path) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def run(engine: Any, tokens: list[int], cache: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Logits [T, V] and the new cache."""
    past = [item.name for item in engine.get_inputs() if item.name.startswith("past")]
    feed = cache or {name: np.zeros((1, 2, 0, 16), np.float32) for name in past}
    outputs = [item.name for item in engine.get_outputs()]
    results = dict(zip(outputs, engine.run(outputs, feed | {"input_ids": np.array([tokens], np.int64)}), strict=True))
    return results["logits"][0], {name: results[name.replace("past_key_values", "present")] for name in past}


def numpy_forward(recipe: ModuleType, tokens: list[int]) -> Any:
    """The architecture once more, in plain NumPy with double precision and explicit loops over heads; logits [T, V]."""
    w = {name: array.astype(np.float64) for name, array in recipe.make_weights().items()}

    def norm(x: Any, weight: Any) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight

    def rotate(x: Any) -> Any:  # complex form of RoPE on pairs (i, i + 8)
        angle = np.outer(np.arange(len(x)), 10_000.0 ** (-np.arange(8) / 8))
        turned = (x[:, :8] + 1j * x[:, 8:]) * np.exp(1j * angle)
        return np.concatenate([turned.real, turned.imag], axis=1)

    x = w["embed"][tokens]
    visible = np.tril(np.ones((len(tokens), len(tokens)), bool))
    for layer in range(4):
        p = f"layers.{layer}."
        h = norm(x, w[p + "attn_norm"])
        query, key, value = h @ w[p + "wq"], h @ w[p + "wk"], h @ w[p + "wv"]
        heads = []
        for head in range(6):
            group = head // 3
            q, k = rotate(query[:, head * 16 : head * 16 + 16]), rotate(key[:, group * 16 : group * 16 + 16])
            scores = np.where(visible, q @ k.T / 4.0, -np.inf)
            share = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(share / share.sum(-1, keepdims=True) @ value[:, group * 16 : group * 16 + 16])
        x = x + np.concatenate(heads, axis=1) @ w[p + "wo"]
        h = norm(x, w[p + "ffn_norm"])
        gate = h @ w[p + "w_gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[p + "w_up"])) @ w[p + "w_down"]
    return norm(x, w["norm"]) @ w["lm_head"]


def test_bytes_are_the_same_on_every_build(recipe: ModuleType, tmp_path: Path) -> None:
    first, second = recipe.build(tmp_path / "a"), recipe.build(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_card_describes_the_file(recipe: ModuleType, tmp_path: Path) -> None:
    path = recipe.build(tmp_path)
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert card["parameters"] == 492_384
    assert "not trained" in card["weights"]


def test_second_build_leaves_the_files_alone(recipe: ModuleType, tmp_path: Path) -> None:
    path = recipe.build(tmp_path)
    before = path.stat().st_mtime_ns
    assert recipe.build(tmp_path).stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:-1])
    assert recipe.build(tmp_path).stat().st_mtime_ns != before, "a damaged file must be built again"


def test_engine_agrees_with_numpy(recipe: ModuleType, engine: Any) -> None:
    tokens = [3, 141, 59, 265, 358, 97, 93, 238, 462, 433]
    logits, _ = run(engine, tokens)
    expected = numpy_forward(recipe, tokens)
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    assert (logits.argmax(-1) == expected.argmax(-1)).all()


def test_decoding_with_cache_equals_full_recompute(engine: Any) -> None:
    prompt = [7, 18, 281, 82]
    cached: list[int] = []
    logits, cache = run(engine, prompt)
    for _ in range(16):
        cached.append(int(logits[-1].argmax()))
        logits, cache = run(engine, cached[-1:], cache)
    full: list[int] = []
    for _ in range(16):
        logits, _ = run(engine, prompt + full)
        full.append(int(logits[-1].argmax()))
    assert cached == full
    assert len(set(full)) > 4, "a model that repeats itself would hide a broken cache"


def test_runner_decodes_what_a_full_recompute_decodes(model: Path, engine: Any) -> None:
    from rig.jetson import runner

    prompt = [11, 222, 33, 44]
    tokens, stamps, started = runner.Engine(str(model)).generate(prompt, 10)
    full: list[int] = []
    for _ in range(10):
        logits, _ = run(engine, prompt + full)
        full.append(int(logits[-1].argmax()))
    assert tokens == full
    assert [started, *stamps] == sorted([started, *stamps])
