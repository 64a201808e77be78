"""Exercises on what a model costs: bytes of weights, adapters and cache, and time to read them."""

from __future__ import annotations

from vclib.notebook.exercises.exercise import Exercise


def parameter_bytes(shapes, bytes_each):
    total = 0
    for shape in shapes:
        numbers = 1
        for side in shape:
            numbers *= side
        total += numbers * bytes_each
    return total


def adapter_parameters(shapes, r):
    return sum(r * (rows + columns) for rows, columns in shapes)


def kv_cache_bytes(layers, heads, head_dim, tokens, bytes_each):
    full = sum(kind == "full_attention" for kind in layers)
    return 2 * full * heads * head_dim * tokens * bytes_each


def decode_ceiling(weight_bytes, cache_bytes, rows, bandwidth):
    seconds = (weight_bytes + rows * cache_bytes) / bandwidth
    return rows / seconds


def _sum_of_sides(shapes: list[tuple[int, ...]], bytes_each: int) -> int:
    return sum(sum(shape) for shape in shapes) * bytes_each


def _whole_matrices(shapes: list[tuple[int, int]], r: int) -> int:
    return sum(r * rows * columns for rows, columns in shapes)


def _every_layer(layers: list[str], *rest: int) -> int:
    return kv_cache_bytes(["full_attention"] * len(layers), *rest)


def _weights_for_each_row(weights: float, cache: float, rows: int, bandwidth: float) -> float:
    return bandwidth / (weights + cache)


EXERCISES = {
    "parameter_bytes": Exercise(
        parameter_bytes,
        cases=[([(3, 4)], 2), ([(3, 4), (5,)], 4), ([(2, 3, 4), (4, 4), (1,)], 2), ([], 2)],
        slips=[
            (_sum_of_sides, "the sides are added; a tensor has as many numbers as their product"),
            (
                lambda shapes, bytes_each: parameter_bytes(shapes, 1),
                "it counts numbers; each of them takes bytes_each bytes",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "adapter_parameters": Exercise(
        adapter_parameters,
        cases=[([(8, 8)], 2), ([(4096, 4096), (12288, 4096)], 16), ([(5, 3), (3, 5)], 1)],
        slips=[
            (_whole_matrices, "A is [r, columns] and B [rows, r]: add their sizes up"),
            (
                lambda shapes, r: sum(r * columns for _, columns in shapes),
                "only A is counted; B has r columns and as many rows as the weight",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "kv_cache_bytes": Exercise(
        kv_cache_bytes,
        cases=[
            (["full_attention"] * 2, 4, 8, 10, 2),
            (["linear_attention", "linear_attention", "full_attention"], 2, 64, 100, 2),
            (["linear_attention"], 2, 64, 100, 4),
        ],
        slips=[
            (
                lambda *case: kv_cache_bytes(*case) // 2,
                "a factor of 2 is missing: keys and values are both kept",
            ),
            (_every_layer, "only layers of full attention keep keys and values of every token"),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "decode_ceiling": Exercise(
        decode_ceiling,
        cases=[(16e9, 0.0, 1, 1e12), (16e9, 0.2e9, 8, 1e12), (2e9, 0.5e9, 64, 3e11)],
        slips=[
            (
                _weights_for_each_row,
                "that is the speed of one row; the weights are read once for all rows of a batch",
            ),
            (
                lambda weights, cache, rows, bandwidth: bandwidth / (weights + rows * cache),
                "those are steps a second; each step gives every row a token",
            ),
            (
                lambda weights, cache, rows, bandwidth: decode_ceiling(
                    weights, cache / rows, rows, bandwidth
                ),
                "the cache of one row only is read; every row has its own",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
}
