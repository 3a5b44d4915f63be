"""What kernels move, against counts by hand of programs of known shapes."""

from __future__ import annotations

import pytest

from mimetic_jax.analysis.compile.hlo import parse
from mimetic_jax.analysis.compile.kernels import Sent, step_kernels
from mimetic_jax.data.augment.chosen import TURNS

SCAN = """
%sliced (p0: f32[6,100], p1: s32[]) -> f32[100] {
  %p0 = f32[6,100]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = f32[1,100]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={1,100}
  %flat = f32[100]{0} bitcast(%slice)
  ROOT %double = f32[100]{0} add(%flat, %flat)
}

%stored (p0: f32[6,100], p1: f32[100], p2: s32[]) -> f32[6,100] {
  %p0 = f32[6,100]{1,0} parameter(0)
  %p1 = f32[100]{0} parameter(1)
  %row = f32[1,100]{1,0} bitcast(%p1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %update = f32[6,100]{1,0} dynamic-update-slice(%p0, %row, %p2, %zero)
}

%body (state: (s32[], f32[6,100])) -> (s32[], f32[6,100]) {
  %state = (s32[], f32[6,100]{1,0}) parameter(0)
  %index = s32[] get-tuple-element(%state), index=0
  %all = f32[6,100]{1,0} get-tuple-element(%state), index=1
  %row_fusion.1 = f32[100]{0} fusion(%all, %index), kind=kLoop, calls=%sliced, MLP
  %store_fusion = f32[6,100]{1,0} fusion(%all, %row_fusion.1, %index), calls=%stored, NORM
  ROOT %next = (s32[], f32[6,100]{1,0}) tuple(%index, %store_fusion)
}

%condition (state: (s32[], f32[6,100])) -> pred[] {
  %state = (s32[], f32[6,100]{1,0}) parameter(0)
  %index = s32[] get-tuple-element(%state), index=0
  %turns = s32[] constant(6)
  ROOT %less = pred[] compare(%index, %turns), direction=LT
}

ENTRY %main (x: f32[6,100]) -> f32[6,100] {
  %x = f32[6,100]{1,0} parameter(0)
  %start = s32[] constant(0)
  %room = f32[6,100]{1,0} custom-call(), custom_call_target="AllocateBuffer"
  %tuple = (s32[], f32[6,100]{1,0}) tuple(%start, %x)
  %while.1 = (s32[], f32[6,100]{1,0}) while(%tuple), condition=%condition, body=%body
  ROOT %result = f32[6,100]{1,0} get-tuple-element(%while.1), index=1
}
"""
SCAN = SCAN.replace("MLP", 'metadata={op_name="jit(f)/ViT/block_0/mlp/add"}')
SCAN = SCAN.replace("NORM", 'metadata={op_name="jit(f)/transpose(jvp(ViT))/block_0/norm1/add"}')


def test_a_loop_moves_its_slices():
    """Six times a row of 400 bytes and its number: read and written, not the whole array."""
    first, second = step_kernels(parse(SCAN))
    assert [first.kind, second.kind] == ["row_fusion", "store_fusion"]
    assert [first.module, second.module] == ["MLP", "norms"]
    assert first.times == second.times == 6
    assert first.bytes == second.bytes == 400 + 400 + 4


def test_the_loop_over_steps_is_the_step():
    """Its number of turns isn't in the program."""
    dispatch = SCAN.replace("%turns = s32[] constant(6)", "%turns = s32[] copy(%index)")
    outside = "  %x.1 = f32[6,100]{1,0} parameter(0)\n  %x = f32[6,100]{1,0} negate(%x.1)\n"
    product = "%double = f32[100]{0} dot(%flat, %flat)"  # of what a step multiplies
    dispatch = dispatch.replace("%double = f32[100]{0} add(%flat, %flat)", product)
    dispatch = dispatch.replace("  %x = f32[6,100]{1,0} parameter(0)\n", outside)
    assert [kernel.times for kernel in step_kernels(parse(dispatch))] == [1, 1]
    assert [kernel.times for kernel in step_kernels(parse(dispatch), turns=4)] == [1, 4, 4]


@pytest.mark.parametrize("turns", ["2.667", "21"])
def test_a_loop_that_says_how_often_it_is_expected_to_turn(turns):
    """It is no dispatch of steps, whatever it multiplies."""
    loop = next(line for line in SCAN.splitlines() if " while(" in line)
    scope = f', metadata={{op_name="jit(f)/{TURNS}{turns}/while"}}'
    expected = SCAN.replace(loop, loop + scope).replace("constant(6)", "copy(%index)")
    assert [kernel.times for kernel in step_kernels(parse(expected))] == [float(turns)] * 2


def one(line):
    """The kernel of a program of one instruction."""
    text = f"""
ENTRY %main (x: f32[64,3]) -> f32[64,3] {{
  %x = f32[64,3]{{1,0:T(8,128)}} parameter(0)
  %fast = f32[64,3]{{1,0:T(8,128)S(1)}} parameter(1)
  %where = s32[10,2]{{1,0}} parameter(2)
  ROOT %made = {line}
}}
"""
    (kernel,) = step_kernels(parse(text))
    return kernel


def test_tiles_and_the_fast_memory_of_a_tpu():
    padded = 64 * 128 * 4
    assert one("f32[64,3]{1,0:T(8,128)} add(%x, %fast)").bytes == 2 * padded
    assert one("f32[64,3]{1,0:T(8,128)S(1)} add(%fast, %fast)").bytes == 0
    copy = "(f32[64,3]{1,0:T(8,128)S(1)}, f32[64,3]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)"
    assert one(copy).bytes == padded


def test_gathers():
    """A gather reads what it returns, and its indices."""
    single = one("f32[10]{0} gather(%x, %where), slice_sizes={1,1}")
    rows = one("f32[10,3]{1,0} gather(%x, %where), slice_sizes={1,3}")
    assert (single.gathered, rows.gathered) == (10, 10)
    assert single.bytes == 2 * 40 + 80
    assert rows.bytes == 2 * 120 + 80


def test_collectives():
    reduced = one("f32[64,3]{1,0} all-reduce(%where), replica_groups=[2,4]<=[8], to_apply=%add")
    assert reduced.sent == Sent("all-reduce", 80, 4, 1)
    gather = "(s32[10,2]{1,0}, s32[40,2]{1,0}) all-gather-start(%where), replica_groups={{0,2,4,6}}"
    gathered = one(gather)
    assert gathered.sent == Sent("all-gather", 320, 4, 2)
    assert gathered.bytes == 80 + 320
