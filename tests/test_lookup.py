import random

from planning_examples import TARGET, clip, images, plan

from encgraph import packing
from encgraph.packers import lookup
from encgraph.packers.lookup import Lookup
from encgraph.records import Capacity, Load


def test_a_tuple_is_the_load_of_its_items() -> None:
    items = [*images(64, 300), clip(3, 88)]
    size = lookup.total([lookup.size_of(item) for item in items])
    assert lookup.load_of(size) == Load.of(items)


def test_the_look_up_finds_what_a_walk_over_the_plan_finds() -> None:
    rng = random.Random(0)
    names = ("tokens", "patches", "items", "segments", "longest_segment", "frames")
    for _ in range(50):
        graphs = {
            (c.tokens, c.items, c.longest_segment): c
            for c in (
                Capacity(tokens=rng.randint(5, 40), **{n: rng.randint(1, 5) for n in names[1:]})
                for _ in range(6)
            )
        }
        planned = TARGET.plan([graphs[key] for key in sorted(graphs)])
        find = Lookup(planned.graphs).find
        for _ in range(20):
            size = (rng.randint(1, 40), *(rng.randint(1, 5) for _ in range(5)), 1.0)
            found = packing.smallest(planned, lookup.load_of(size))
            assert find(size) == (-1 if found is None else found)


def test_a_price_decides_which_graph_is_found_first() -> None:
    planned = plan(64, 128)
    dear = Lookup(planned.graphs, lambda index: -index)
    assert dear.find(lookup.size_of(images(10)[0])) == 1
