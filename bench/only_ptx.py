#!/usr/bin/env python3
"""Copies a program such that a card must compile its kernels from PTX: bench/only_ptx.py PROGRAM COPY

The machine code of our kernels is marked as that of a card which none is. CUDA_FORCE_PTX_JIT would do so
for cuBLASLt too, which has no PTX for most cards.

A fat binary begins with the number 0xba55ed50, its header's size (u16 at 6) and the bytes that follow the
header (u64 at 8). Its entries: kind (u16 at 0: 1 PTX, 2 machine code), header's size (u32 at 4), bytes that
follow (u64 at 8), compute capability (u32 at 28).
"""
import collections
import os
import struct
import sys

NO_CARD = 10


def mark(data):
    found = collections.Counter()
    begin = data.find(b"\x50\xed\x55\xba")
    while begin >= 0:
        at = begin + 4
        version, header, size = struct.unpack_from("<HHQ", data, begin + 4)
        end = begin + header + size
        if version == 1 and header == 16 and end <= len(data):
            at = begin + header
            while at < end:
                kind, _, head, payload = struct.unpack_from("<HHIQ", data, at)
                (capability,) = struct.unpack_from("<I", data, at + 28)
                found[{1: "PTX", 2: "machine code"}[kind], capability] += 1
                if kind == 2:
                    struct.pack_into("<I", data, at + 28, NO_CARD)
                at += head + payload
        begin = data.find(b"\x50\xed\x55\xba", at)
    return found


def main():
    source, copy = sys.argv[1:]
    with open(source, "rb") as file:
        data = bytearray(file.read())
    found = mark(data)
    if not any(kind == "PTX" for kind, _ in found):
        sys.exit(f"{source} holds no PTX")
    with open(copy, "wb") as file:
        file.write(data)
    os.chmod(copy, 0o755)
    print(", ".join(f"{count} of {kind} {card}" for (kind, card), count in sorted(found.items())))


main()
