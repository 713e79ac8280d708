"""The decorators that compile kernels: ahead of the first call, cached on disk, and without the GIL.

A kernel names its signature, so importing its module compiles it once for this machine and later imports load the cached code:
the first call in a Spark worker costs milliseconds. Kernels take arrays and addresses. An address is a plain int64, and the
caller keeps the memory behind it alive for the whole call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Inputs are declared read-only so that memory-mapped arrays are accepted; numba converts writable ones.
U8 = types.Array(types.uint8, 1, "C", readonly=True)
I32 = types.Array(types.int32, 1, "C", readonly=True)
I64 = types.Array(types.int64, 1, "C", readonly=True)
U64 = types.Array(types.uint64, 1, "C", readonly=True)
F32 = types.Array(types.float32, 1, "C", readonly=True)
F64 = types.Array(types.float64, 1, "C", readonly=True)
# Outputs and scratch space, which the caller allocates.
u8 = types.uint8[::1]
u32 = types.uint32[::1]
i32 = types.int32[::1]
i64 = types.int64[::1]
u64 = types.uint64[::1]
f32 = types.float32[::1]
f64 = types.float64[::1]
int64 = types.int64
uint64 = types.uint64
float64 = types.float64
boolean = types.boolean
void = types.void

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def kernel(signature: Any) -> Decorator:
    """Compile a function now for one signature, and cache the machine code beside the source."""
    return njit(signature, cache=True, nogil=True, error_model="numpy")


helper: Decorator = njit(cache=True, nogil=True, error_model="numpy", inline="never")


def _loader(llvm_type: ir.Type, numba_type: types.Type) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], llvm_type.as_pointer())
            return builder.load(pointer, align=1)

        return numba_type(types.int64), codegen

    return load


def _storer(llvm_type: ir.Type, numba_type: types.Type) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], llvm_type.as_pointer())
            builder.store(args[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, numba_type), codegen

    return store


load_u8 = _loader(ir.IntType(8), types.uint8)
load_u16 = _loader(ir.IntType(16), types.uint16)
load_u32 = _loader(ir.IntType(32), types.uint32)
load_u64 = _loader(ir.IntType(64), types.uint64)
load_i64 = _loader(ir.IntType(64), types.int64)
store_u8 = _storer(ir.IntType(8), types.uint8)
store_u16 = _storer(ir.IntType(16), types.uint16)
store_u32 = _storer(ir.IntType(32), types.uint32)
store_u64 = _storer(ir.IntType(64), types.uint64)
store_i64 = _storer(ir.IntType(64), types.int64)


@intrinsic
def load_u32_at(typingctx: Any, address: Any, index: Any) -> Any:
    """Load number `index` of the u32 at an address. LLVM vectorises a loop over the index, which it does not over addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(32).as_pointer())
        return builder.load(builder.gep(pointer, [args[1]]), align=1)

    return types.uint32(types.int64, types.int64), codegen


@intrinsic
def copy_bytes(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes from address to address (memcpy)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address, to be read soon; any address will do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        call = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), [byte] + 3 * [word])
        )
        read, keep, data = (ir.Constant(word, value) for value in (0, 3, 1))
        builder.call(call, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Count the zero bits below the lowest one of a word that is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def atomic_load(typingctx: Any, address: Any) -> Any:
    """Load an aligned 64-bit integer that other threads store to; what they stored before it is seen too."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def atomic_add(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to an aligned 64-bit integer that other threads use; returns what it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def atomic_replace(typingctx: Any, address: Any, expected: Any, value: Any) -> Any:
    """Replace an aligned 64-bit integer if it is still the expected one; returns whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@helper
def compare_bytes(a: int, a_length: int, b: int, b_length: int) -> int:
    """Compare two byte strings at addresses as memcmp does, a prefix before the longer string; returns -1, 0 or 1."""
    shortest = min(a_length, b_length)
    i = 0
    while i + 8 <= shortest and load_u64(a + i) == load_u64(b + i):
        i += 8
    while i < shortest:
        x = load_u8(a + i)
        y = load_u8(b + i)
        if x != y:
            return -1 if x < y else 1
        i += 1
    if a_length == b_length:
        return 0
    return -1 if a_length < b_length else 1
