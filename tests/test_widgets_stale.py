import pytest

from encgraph import widgets
from encgraph.microscope import Microscope, RowState, Safeguards
from encgraph.widgets.stale import StaleState

WRONG = {RowState.WRONG, RowState.WRONG_NAN}


@pytest.fixture(scope="module")
def microscope() -> Microscope:
    return Microscope()


def last(microscope: Microscope, **off: bool) -> list[RowState]:
    look = microscope.look(Safeguards(**off))
    return [row[-1] for row in look.states[: look.live]]


def test_with_every_safeguard_on_live_rows_are_right(microscope: Microscope) -> None:
    assert set(last(microscope)) == {RowState.RIGHT}
    assert set(last(microscope, poison=True)) == {RowState.RIGHT}


def test_unpadded_offsets_reach_live_rows(microscope: Microscope) -> None:
    assert RowState.WRONG in last(microscope, offsets=False)


def test_scratch_in_the_attention_slab_reaches_live_rows_as_nan(microscope: Microscope) -> None:
    look = microscope.look(Safeguards(clearing=False))
    assert look.first_wrong() == "block 2"
    assert look.count(RowState.WRONG_NAN) == look.live


def test_poisoned_pixels_reach_live_rows_only_unzeroed(microscope: Microscope) -> None:
    assert RowState.WRONG_NAN in last(microscope, poison=True, zeroing=False)


def test_stale_pixels_alone_stay_in_padding(microscope: Microscope) -> None:
    look = microscope.look(Safeguards(zeroing=False))
    assert {row[0] for row in look.states[look.live :]} == {RowState.STALE}
    assert look.first_wrong() is None


def test_a_borrowed_output_changes_under_its_holder(microscope: Microscope) -> None:
    assert not WRONG & set(microscope.look().held)
    assert WRONG & set(microscope.look(Safeguards(cloning=False)).held)


def test_a_look_leaves_no_hook_behind(microscope: Microscope) -> None:
    microscope.look()
    assert all(not m._forward_hooks for m in microscope.tower.module.modules())


def test_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="within 128 tokens"):
        Microscope(large=(32,), small=(64,))


def test_the_explorer_draws_what_the_microscope_sees(microscope: Microscope) -> None:
    view = widgets.stale_state(microscope)
    assert isinstance(view, StaleState)
    assert "all 75 live rows are right" in view.note.value
    view.switches["clearing"].value = False
    assert "75 of 75 live rows are wrong, first after block 2" in view.note.value
    assert view.plot.figure.data[0].z[0][2] == RowState.WRONG_NAN
    view.switches["clearing"].value = True
    assert "all 75 live rows are right" in view.note.value
