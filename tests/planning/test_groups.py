"""Which groups are legal, which is chosen, and why every other one is rejected."""

import msgspec
import pytest
from host_states import blocks, state, two_die_boards

from anchormatrix.planning.groups import resolve_groups, show
from anchormatrix.records.host import HostState
from anchormatrix.records.settings.policies import GroupsSettings, HealthSettings

HEALTH = HealthSettings(static_memory_mb=8192, on_busy="skip", busy_wait_s=0, contaminated_tries=1)
WAIT = HealthSettings(static_memory_mb=8192, on_busy="wait", busy_wait_s=0, contaminated_tries=1)
STRICT = GroupsSettings(allow_cross_domain=False, allow_mixed_models=False, pinned={})


def resolve(host, sizes, health=HEALTH, groups=STRICT, current=None):
    return resolve_groups(host, sizes, health=health, groups=groups, current=current or {})


def chosen(resolution, size):
    return [candidate.cards for candidate in resolution.candidates[size]]


def why(resolution, *cards):
    return next(item.reason for item in resolution.rejected if item.cards == cards)


def test_two_quads_give_pairs_quads_and_all_cards():
    found = resolve(state(blocks([4, 4])), [2, 4, 8])
    assert chosen(found, 2) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert chosen(found, 4) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert chosen(found, 8) == [tuple(range(8))]


def test_a_mixed_group_and_a_crossing_pair_are_rejected_with_the_link_that_says_so():
    found = resolve(state(blocks([4, 4])), [2, 4])
    assert why(found, 2, 3, 4, 5) == "mixes domains: 2 and 4 are joined by SYS"
    assert why(found, 1, 2) == "crosses pairs: not an aligned block of 2 in domain 0–3"
    assert why(found, 3, 4) == "mixes domains: 3 and 4 are joined by SYS"


def test_a_mesh_of_eight_gives_its_two_aligned_halves():
    found = resolve(state(blocks([8], inside="HCCS")), [4])
    assert chosen(found, 4) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert why(found, 1, 2, 3, 4).startswith("crosses pairs")


def test_on_two_die_boards_a_pair_is_two_dies():
    found = resolve(state(two_die_boards(4)), [2])
    assert chosen(found, 2) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert "not the two dies of one board" in why(found, 1, 2)


def test_sixteen_cards_give_aligned_blocks_of_eight_without_a_list_of_thousands():
    found = resolve(state(two_die_boards(8)), [8, 16])
    assert chosen(found, 8) == [tuple(range(8)), tuple(range(8, 16))]
    assert chosen(found, 16) == [tuple(range(16))]
    assert len(found.rejected) < 12
    assert found.rejected[-1].reason == "12861 other sets of 8 cards are no aligned block of one domain"


def test_pairs_only_means_no_legal_four_but_all_eight():
    found = resolve(state(blocks([2, 2, 2, 2])), [2, 4, 8])
    assert chosen(found, 4) == []
    assert "mixes domains" in found.why_none(4)
    assert found.candidates[8][0].reason == (
        "all cards, crosses domains over SYS+UB, not one interconnect domain, bandwidth second-best"
    )


def test_the_override_allows_an_aligned_group_across_domains_and_says_what_it_is():
    found = resolve(
        state(blocks([2, 2])),
        [3],
        groups=GroupsSettings(allow_cross_domain=True, allow_mixed_models=False, pinned={3: (0, 1, 2)}),
    )
    assert chosen(found, 3) == [(0, 1, 2)]
    assert "bandwidth second-best" in found.candidates[3][0].reason
    assert not found.candidates[3][0].one_domain


@pytest.mark.parametrize("word", ["Alarm", "Critical", "Fault"])
def test_a_sick_card_takes_its_groups_away(word):
    found = resolve(state(blocks([4, 4]), health={2: word}), [2, 4, 8])
    assert chosen(found, 2) == [(0, 1), (4, 5), (6, 7)]
    assert chosen(found, 4) == [(4, 5, 6, 7)]
    assert chosen(found, 8) == []
    assert why(found, 0, 1, 2, 3) == f"card 2 says {word}"


def test_a_warning_is_a_later_choice_that_only_the_smoke_can_confirm():
    found = resolve(state(blocks([4, 4]), health={1: "Warning"}), [4])
    assert chosen(found, 4) == [(4, 5, 6, 7), (0, 1, 2, 3)]
    assert found.candidates[4][1].state == "warning"
    assert "counts only after the smoke" in found.candidates[4][1].reason


def test_an_unknown_word_of_health_is_not_taken_for_ok():
    found = resolve(state(blocks([2]), health={0: "Dreaming"}), [2])
    assert chosen(found, 2) == []
    assert "not a known state" in found.why_none(2)


def test_a_tenant_takes_a_group_away_and_is_waited_for_only_where_nothing_else_is_free():
    host = state(blocks([4, 4]), tenants={0: "rtp_llm"})
    assert chosen(resolve(host, [4]), 4) == [(4, 5, 6, 7)]
    assert why(resolve(host, [4]), 0, 1, 2, 3) == "occupied: rtp_llm (pid 4242) on card 0"
    waiting = resolve(host, [4, 8], health=WAIT)
    assert chosen(waiting, 4) == [(4, 5, 6, 7)]
    assert "rtp_llm (pid 4242) on card 0" in why(waiting, 0, 1, 2, 3)
    assert chosen(waiting, 8) == [tuple(range(8))]
    assert waiting.candidates[8][0].state == "busy"


def test_memory_without_a_visible_process_is_a_tenant_and_driver_memory_is_not():
    assert chosen(resolve(state(blocks([2]), used_mb={0: 37397}), [2]), 2) == []
    assert chosen(resolve(state(blocks([2]), used_mb={0: 5086}), [2]), 2) == [(0, 1)]


def test_the_current_group_is_kept_among_equals_but_not_when_it_is_sick():
    current = {4: (4, 5, 6, 7)}
    assert chosen(resolve(state(blocks([4, 4])), [4], current=current), 4)[0] == (4, 5, 6, 7)
    sick = state(blocks([4, 4]), health={5: "Alarm"})
    assert chosen(resolve(sick, [4], current=current), 4) == [(0, 1, 2, 3)]


def test_a_pinned_group_is_the_only_one():
    groups = GroupsSettings(allow_cross_domain=False, allow_mixed_models=False, pinned={4: (4, 5, 6, 7)})
    found = resolve(state(blocks([4, 4])), [4], groups=groups)
    assert chosen(found, 4) == [(4, 5, 6, 7)]
    assert why(found, 0, 1, 2, 3) == "groups.pinned asks for 4–7"


def test_a_pinned_group_may_be_written_in_any_order():
    groups = GroupsSettings(allow_cross_domain=False, allow_mixed_models=False, pinned={4: (7, 4, 6, 5)})
    assert chosen(resolve(state(blocks([4, 4])), [4], groups=groups), 4) == [(4, 5, 6, 7)]


def test_a_host_with_too_few_cards_says_so():
    found = resolve(state(blocks([4])), [8])
    assert found.rejected[0].reason == "the host shows 4 cards"


def test_ids_are_shown_as_a_person_writes_them():
    assert show((0, 1, 2, 3)) == "0–3"
    assert show((0, 1)) == "0,1"
    assert show((0, 2, 3)) == "0,2,3"


def test_two_models_form_one_group_only_when_configured():
    host = state(blocks([4]))
    names = {card.id: f"RTX {3090 + 1000 * (card.id % 2)}" for card in host.cards}
    cards = tuple(msgspec.structs.replace(card, name=names[card.id]) for card in host.cards)
    mixed = HostState(host.topology, cards, host.versions)
    found = resolve(mixed, [2, 4])
    assert [one.cards for one in found.candidates[2]] == [(0, 2), (1, 3)]
    assert found.candidates[4] == ()
    assert "mixes models RTX 3090 and RTX 4090" in found.why_none(4)
    allowed = GroupsSettings(allow_cross_domain=False, allow_mixed_models=True, pinned={})
    whole = resolve(mixed, [2, 4], groups=allowed)
    assert whole.candidates[2][0].cards == (0, 2)
    assert "mixes models RTX 3090 and RTX 4090" in whole.candidates[4][0].reason
