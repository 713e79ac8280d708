"""Sampled stacks become stages and a flame graph."""

from xml.etree import ElementTree

from benchmarks.profile.flame import flame_graph, tree
from benchmarks.profile.stages import OTHER, joining, read_stacks, shares

LINES = """\
main (core.py:1);import (importlib/x.py:1);<module> (headrace/semistream/base.py:1) 50
main (core.py:1);read (streams.py:2) 7
main (core.py:1);run (headrace/semistream/base.py:9);read (headrace/relation/reader.py:5);start (headrace/relation/disk.py:7) 6
main (core.py:1);run (headrace/semistream/base.py:9);read (headrace/relation/reader.py:5) 1
main (core.py:1);run (headrace/semistream/base.py:9);elsewhere <b> (x.py:1) 3
"""


def test_a_stack_counts_for_the_innermost_stage_it_is_in():
    stacks = joining(read_stacks(LINES.splitlines()))
    assert sum(stack.count for stack in stacks) == 10  # imports and input are none of the join
    assert shares(stacks) == [("reads", 0.6), (OTHER, 0.3), ("plan of reads", 0.1)]


def test_a_flame_graph_has_a_box_for_every_function_and_is_sound_xml():
    stacks = joining(read_stacks(LINES.splitlines()))
    root = tree(stacks)
    assert root.count == 10
    assert [call.count for call in root.calls["run (headrace/semistream/base.py:9)"].calls.values()] == [7, 3]
    drawn = ElementTree.fromstring(flame_graph(stacks, "a <title>"))
    names = [title.text for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(names) == 5
    assert "elsewhere <b> (x.py:1) 30.0%" in names
