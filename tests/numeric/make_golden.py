#!/usr/bin/env python3
"""Records what ml_dtypes and numpy make of the same numbers, for kv_numeric_test.

usage: make_golden.py OUTPUT_FOLDER

ml_dtypes' float8_e4m3fn turns what is too large into NaN and float8_e5m2 into infinity, so inputs are limited to the
largest finite value first; NaN passes the limit.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np


def encode(x, dtype, largest):
    limited = np.where(np.isnan(x), x, np.clip(x, -largest, largest)).astype(np.float32)
    return limited.astype(dtype).view(np.uint8)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, array):
        (folder / name).write_bytes(np.ascontiguousarray(array).tobytes())

    codes = np.arange(256, dtype=np.uint8)
    all_bf16 = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    bits = np.random.default_rng(20250117).integers(0, 1 << 32, 4096, dtype=np.uint32)
    # Half of the patterns get an exponent from 2^-17 to 2^17, where both FP8 formats have their codes.
    bits[::2] = (bits[::2] & 0x807FFFFF) | ((110 + bits[::2] // 7 % 35) << 23)
    x = bits.view(np.float32)
    write("random_f32.bin", x)
    write("random_bf16.bin", x.astype(ml_dtypes.bfloat16).view(np.uint16))
    write("random_f16.bin", x.astype(np.float16).view(np.uint16))
    for name, dtype, largest in (("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344)):
        write(f"{name}_decoded.bin", codes.view(dtype).astype(np.float32))
        write(f"{name}_of_all_bf16.bin", encode(all_bf16, dtype, largest))
        write(f"{name}_of_random.bin", encode(x, dtype, largest))


if __name__ == "__main__":
    with np.errstate(over="ignore", invalid="ignore"):
        main()
