"""``npu-smi`` outputs become the right cards, links and ids; anything damaged is an error that shows where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchormatrix.devices.ascend import AscendDevice
from anchormatrix.devices.ascend_ids import logic_ids, parse_map
from anchormatrix.devices.ascend_info import parse_info, read_info, tool_version
from anchormatrix.devices.ascend_topology import parse_topology
from anchormatrix.errors import InputError
from anchormatrix.hosts.base import Completed
from anchormatrix.records.host import CardProcess, CardState

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures" / "npu-smi"

ONE_CHIP = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                   Version: 25.2.0                                         |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B3               | OK            | 97.1        50                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3351 / 65536         |
+===========================+===============+====================================================+
| 5     910B3               | Warning       | -           39                0    / 0             |
| 0                         | 0000:41:00.0  | 63          0    / 0          60185/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 2                                                            |
+===========================+===============+====================================================+
| 5       0                 | 4711          |                          | 115                     |
| 5       0                 | 4712          | a|b                      | 33895                   |
+===========================+===============+====================================================+
"""

TWO_CHIPS = """\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.1.0.b087                         Version: 26.1.0.b087                                                 |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 6     Ascend910           | OK            | 159.8                32                      0    / 0                |
| 0     12                  | 0000:85:00.0  | 0                    0    / 0                37295/ 65536            |
+------------------------------------------------------------------------------------------------------------------+
| 6     Ascend910           | Alarm         | -                    31                      0    / 0                |
| 1     13                  | 0000:87:00.0  | 0                    0    / 0                37055/ 65536            |
+===========================+===============+======================================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 6       1                 | 3398615       | VLLMWorker_DP      | 34229                 | 88                      |
+===========================+===============+======================================================================+
"""

ONE_CARD_PER_NPU = """\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.2.0.b007                              Version: 26.2.0.b007                                            |
+--------+------------------+---------------+----------------------------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)              Temp(C)                  Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%)           Memory-Usage(MB)         HBM-Usage(MB)         |
+========+==================+===============+======================================================================+
| 0      | Ascend950DT      | OK            | 451.3                 39                       0     / 0             |
|        |                  | NA            | 0                     0     / 0                5086  / 98304         |
+===========================+===============+======================================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU ID                    | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 0                         | 3252331       | udma_d2h_demo      | 341                   | NA                      |
+===========================+===============+======================================================================+
"""

PAIRS = """\
           NPU4       NPU5       NPU6       NPU7       CPU Affinity
NPU4       X          UB         SYS        SYS        0-63,128-191
NPU5       UB         X          SYS        SYS        0-63,128-191
NPU6       SYS        SYS        X          UB         64-127
NPU7       SYS        SYS        UB         X          64-127

Legend:

  X    = Self
  UB   = Connection traversing UB.
"""

MAP = """\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID                    Chip Name
\t6                              0                              0                              12                             Ascend910
\t6                              1                              1                              13                             Ascend910
\t6                              2                              -                              -                              Mcu
"""  # noqa: E501

OLD_MAP = """\
        NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
        2                              0                              0                              Ascend 910B3
        2                              1                              -                              Mcu
        5                              0                              1                              Ascend 910B3
        5                              1                              -                              Mcu
"""


def capture(name: str) -> str:
    if not CAPTURES.is_dir():
        pytest.skip("../shared/captures is not here")
    return (CAPTURES / name).read_text(encoding="utf-8")


# --- the layouts ----------------------------------------------------------------------------------------------------


def test_a_board_with_one_chip_per_npu_names_its_cards_by_npu():
    two, five = parse_info(ONE_CHIP)
    assert (two.id, two.npu, two.chip, two.name, two.health) == (2, 2, 0, "910B3", "OK")
    assert (two.hbm_used_mb, two.hbm_total_mb, two.power_w, two.temperature_c) == (3351, 65536, 97.1, 50)
    assert (five.id, five.health, five.hbm_used_mb, five.power_w) == (5, "Warning", 60185, None)
    assert two.processes == ()
    assert five.processes == (CardProcess(4711, "", 115), CardProcess(4712, "a|b", 33895))


def test_a_board_with_two_chips_names_its_cards_by_physical_id():
    twelve, thirteen = parse_info(TWO_CHIPS)
    assert (twelve.id, twelve.npu, twelve.chip, twelve.processes) == (12, 6, 0, ())
    assert (thirteen.id, thirteen.npu, thirteen.chip, thirteen.health) == (13, 6, 1, "Alarm")
    assert thirteen.processes == (CardProcess(3398615, "VLLMWorker_DP", 34229),)


def test_a_board_whose_header_starts_npu_id_has_one_card_per_npu():
    (card,) = parse_info(ONE_CARD_PER_NPU)
    assert (card.id, card.npu, card.chip, card.name) == (0, 0, 0, "Ascend950DT")
    assert (card.hbm_used_mb, card.hbm_total_mb) == (5086, 98304)
    assert card.processes == (CardProcess(3252331, "udma_d2h_demo", 341),)


def test_the_title_gives_tool_and_driver():
    assert tool_version(TWO_CHIPS) == (("driver", "26.1.0.b087"), ("tool", "26.1.0.b087"))


@pytest.mark.parametrize(
    ("word", "health"), [("OK", "OK"), ("Critical", "Critical"), ("FAULT", "Fault"), ("alarm", "Alarm"), ("Odd", "Odd")]
)
def test_health_words_keep_their_meaning_and_unknown_ones_are_shown(word: str, health: str):
    assert parse_info(ONE_CHIP.replace("Warning", word.ljust(7)))[1].health == health


@pytest.mark.parametrize("health", ["Warning", "Alarm  "])
def test_memory_that_is_not_told_is_unknown(health: str):
    text = ONE_CHIP.replace("60185/ 65536", "NA   / NA   ").replace("Warning", health)
    second = parse_info(text)[1]
    assert (second.hbm_used_mb, second.hbm_total_mb) == (None, None)
    assert second.state is (CardState.PARTLY if health == "Warning" else CardState.UNUSABLE)


def test_colours_and_carriage_returns_change_nothing():
    assert parse_info("\x1b[1m" + ONE_CHIP.replace("\n", "\r\n") + "\x1b[0m") == parse_info(ONE_CHIP)


# --- damaged outputs ------------------------------------------------------------------------------------------------


SECOND_ROW_2 = "| 0                         | 0000:C2"
SECOND_ROW_5 = "| 0                         | 0000:41"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("   \n\n", "is empty"),
        ("bash: npu-smi: command not found", "«bash: npu-smi: command not found»"),
        ("dcmi module initialize failed. ret is -8005", "«dcmi module initialize failed. ret is -8005»"),
        (ONE_CHIP[: ONE_CHIP.index("| 5     910B3")], "is cut off"),
        (ONE_CHIP[: ONE_CHIP.index(SECOND_ROW_5)], "is cut off"),
        (ONE_CHIP[: ONE_CHIP.index("| 5       0                 | 4712")], "is cut off"),
        (TWO_CHIPS.replace("| 6       1 ", "| 6       2 "), "chip 2, which is not a listed card"),
        (ONE_CHIP.replace("Process name ", "Process nome "), "is not the header of the processes"),
        ("\x00" + ONE_CHIP, "is not the text of this tool"),
    ],
)
def test_a_damaged_listing_is_an_error_that_names_the_command_and_the_line(text: str, says: str):
    with pytest.raises(InputError) as caught:
        parse_info(text)
    assert "output of `npu-smi info`" in str(caught.value)
    assert says in str(caught.value)


LOST_CARDS = [
    (ONE_CHIP.replace("60185/ 65536", "6O185/ 65536"), 5, "is not the second row of a card «| 0 "),
    (ONE_CHIP.replace("60185/ 65536", "90185/ 65536"), 5, "uses 90185 of 65536"),
    (ONE_CHIP.replace(SECOND_ROW_2, SECOND_ROW_2.replace("0 ", "1 ", 1)), 2, "without a Phy-ID"),
    (
        ONE_CHIP.replace("910B3               | Warning ", "910\ufffd3               | Warning "),
        5,
        "is not the first row",
    ),
]


@pytest.mark.parametrize(("text", "card", "says"), LOST_CARDS)
def test_a_card_that_cannot_be_read_is_named_and_refuses_no_other(text: str, card: int, says: str):
    cards = {one.id: one for one in parse_info(text)}
    assert cards[card].state is CardState.UNUSABLE
    assert says in cards[card].reason


def test_a_card_whose_chip_row_or_whole_entry_is_missing_is_lost():
    lines = ONE_CHIP.splitlines(keepends=True)
    lower = next(line for line in lines if line.startswith(SECOND_ROW_5))
    first, second = parse_info(ONE_CHIP.replace(lower, ""))
    assert (first.state, second.state, second.id) == (CardState.KNOWN, CardState.UNUSABLE, 5)
    assert second.reason == "cannot be read: its second row is missing"
    upper = next(line for line in lines if line.startswith("| 5     910B3"))
    first, second = parse_info(ONE_CHIP.replace(upper, ""))
    assert (first.id, second.id, second.reason) == (2, 5, "cannot be read: its first row is missing")
    first, second = parse_info(ONE_CHIP.replace(upper + lower, ""))
    assert (second.id, second.state) == (5, CardState.UNUSABLE)
    assert second.reason == "is lost: the table of processes names it, the table of cards does not"


def test_a_process_table_of_busy_npus_only():
    idle = next(line for line in ONE_CHIP.splitlines(keepends=True) if "No running" in line)
    first, second = parse_info(ONE_CHIP.replace(idle, ""))
    assert (first.state, first.processes, len(second.processes)) == (CardState.KNOWN, (), 2)
    nobody_named = ONE_CHIP[: ONE_CHIP.index("| 5       0                 | 4711")]
    second = parse_info(nobody_named)[1]
    assert (second.state, second.reason) == (CardState.PARTLY, "is not named in the table of processes")


@pytest.mark.parametrize("word", ["Alarm", "Critical", "UNKNOWN", "Offline"])
def test_a_card_in_bad_health_is_unusable_with_the_vendors_word(word: str):
    second = parse_info(ONE_CHIP.replace("Warning", word.ljust(7)))[1]
    assert second.state is CardState.UNUSABLE
    assert word in second.reason


def test_a_banner_and_a_second_process_table_change_no_card():
    listing = read_info("WARNING: driver is old\n" + ONE_CHIP)
    assert listing.cards == parse_info(ONE_CHIP)
    assert listing.notes == ("`npu-smi info` says beside its table, in 1 lines: «WARNING: driver is old»",)
    twice = ONE_CHIP + ONE_CHIP[ONE_CHIP.index("| NPU     Chip") :]
    assert parse_info(twice) == parse_info(ONE_CHIP)


def test_of_several_outputs_in_one_text_the_last_whole_one_counts():
    later = ONE_CHIP.replace("60185/ 65536", "3300 / 65536").replace("4711", "4713")
    listing = read_info(ONE_CHIP + later)
    assert [(card.id, card.hbm_used_mb) for card in listing.cards] == [(2, 3351), (5, 3300)]
    assert [process.pid for process in listing.cards[1].processes] == [4713, 4712]
    assert listing.notes == ("there are 2 outputs of `npu-smi info`, from lines 1 and 21: that from line 21 counts",)
    cut = read_info(ONE_CHIP + later[: later.index("| NPU     Chip")])
    assert cut.cards == parse_info(ONE_CHIP)
    assert "that from line 1 counts; the one from line 21 cannot be read: is cut off" in cut.notes[-1]


def test_a_process_row_that_cannot_be_read_is_a_process_of_its_card():
    listing = read_info(ONE_CHIP.replace("| 33895  ", "| 33#95  "))
    first, second = listing.cards
    assert (first.state, second.state) == (CardState.KNOWN, CardState.PARTLY)
    assert [(one.pid, one.name, one.memory_mb) for one in second.processes] == [
        (4711, "", 115),
        (4712, "a row that cannot be read", None),
    ]
    assert second.reason.startswith("has 1 process rows that cannot be read: process memory is «33#95» in «| 5 ")
    assert listing.notes[0].startswith("`npu-smi info` has 1 process rows that cannot be read: process memory is")


def test_a_process_row_that_tells_no_card_makes_every_card_partly_known():
    listing = read_info(ONE_CHIP.replace("| 5       0                 | 4712", "| ?       0                 | 4712"))
    assert [(card.state, [one.pid for one in card.processes]) for card in listing.cards] == [
        (CardState.PARTLY, []),
        (CardState.PARTLY, [4711]),
    ]
    assert listing.cards[0].reason.startswith("may have a process of which the row cannot be read: NPU is «?» in «| ?")


def test_a_card_that_is_listed_twice_says_what_to_do():
    todo = (
        "run the tool again and give one output as it comes; when the rows are still two, reset the card or its driver"
    )
    rows = ONE_CHIP[
        ONE_CHIP.index("| 5     910B3") : ONE_CHIP.index("+---------------------------+---------------+", 900)
    ]
    first, second = parse_info(ONE_CHIP.replace(rows, rows * 2))
    assert (first.state, second.id, second.state) == (CardState.KNOWN, 5, CardState.UNUSABLE)
    assert second.reason == f"is listed a second time: {todo}"
    with pytest.raises(InputError, match=f"card 5 is listed a second time; .*; {todo}"):
        parse_info(ONE_CHIP.replace("| 2     910B3", "| 5     910B3"))


def test_all_cards_lost_is_refused_with_the_reasons():
    with pytest.raises(InputError, match=r"no card of 2 can be used: card 2 cannot be read: .*; card 5 cannot be read"):
        parse_info(ONE_CHIP.replace(" / 65536", " % 65536").replace("/ 65536", "% 65536"))


# --- links ----------------------------------------------------------------------------------------------------------


def test_links_and_ids_come_from_the_header():
    topology = parse_topology(PAIRS)
    assert topology.cards == (4, 5, 6, 7)
    assert topology.links[0] == ("X", "UB", "SYS", "SYS")
    assert topology.domains == ((4, 5), (6, 7))


def test_header_flush_left_and_no_affinity_column():
    text = "NPU0       NPU1\nNPU0       X          HCCS\nNPU1       HCCS       X\n"
    assert parse_topology(text).links == (("X", "HCCS"), ("HCCS", "X"))


def test_cells_missing_at_the_end_come_from_their_mirror():
    text = "     NPU0 NPU1 NPU2 CPU Affinity\nNPU0 X    UB   SYS  0-23\nNPU1 UB   X    UB\nNPU2 SYS\n"
    assert parse_topology(text).links == (("X", "UB", "SYS"), ("UB", "X", "UB"), ("SYS", "UB", "X"))


def test_an_unknown_link_counts_when_the_legend_explains_it():
    text = "     NPU0 NPU1\nNPU0 X NEW\nNPU1 NEW X\n"
    with pytest.raises(InputError, match=r"line 2: cell 2 is 'NEW' in «NPU0 X NEW»"):
        parse_topology(text)
    assert parse_topology(text + "\nLegend:\n\n  X   = Self\n  NEW = A new bus\n").links[0] == ("X", "NEW")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("garbage", "is not the header of the link matrix «garbage»"),
        ("NPU0 NPU1 Phy-ID2\n", "names a card twice or in two ways"),
        (PAIRS.replace("NPU6       SYS", "NPU9       SYS"), "where the row of NPU6 should"),
        (PAIRS[: PAIRS.index("NPU7       SYS")], "has 3 rows for 4 cards"),
        (PAIRS.replace("NPU5       UB ", "NPU5       SYS"), "says UB to NPU5, which says SYS back"),
        ("NPU0 NPU1\nNPU0 X\nNPU1\n", "lacks cell 2, and so does its mirror"),
        (PAIRS.replace("64-127\n", "64-127 extra\n", 1), "more than links and one CPU affinity"),
    ],
)
def test_a_damaged_matrix_is_an_error_that_names_the_command_and_the_line(text: str, says: str):
    with pytest.raises(InputError, match=says) as caught:
        parse_topology(text)
    assert "output of `npu-smi info -t topo`" in str(caught.value)


# --- ids and process memory ------------------------------------------------------------------------------------------


def test_a_matrix_that_comes_twice_is_read_once_and_two_matrices_are_told_apart_by_their_lines():
    assert parse_topology(PAIRS + PAIRS) == parse_topology(PAIRS)
    with pytest.raises(InputError, match=r"line 11: differs from the output that begins at line 1 «"):
        parse_topology(PAIRS + PAIRS.replace("UB", "SIO"))


def test_logic_ids_follow_the_map_and_not_the_card_number():
    assert logic_ids(parse_info(TWO_CHIPS), parse_map(MAP)) == {12: 0, 13: 1}
    assert logic_ids(parse_info(ONE_CHIP), parse_map(OLD_MAP)) == {2: 0, 5: 1}


def test_a_map_without_a_listed_card_is_an_error():
    with pytest.raises(InputError, match=r"NPU 5 chip 0 is not in the id map"):
        logic_ids(parse_info(ONE_CHIP), parse_map(MAP.replace("6  ", "2  ")))


@pytest.mark.parametrize("text", ["", "what", MAP.replace("Logic", "Magic"), MAP[:140], MAP.replace("13 ", "12 ")])
def test_a_damaged_map_is_an_error(text: str):
    with pytest.raises(InputError, match="npu-smi info -m"):
        parse_map(text)


# --- the device -----------------------------------------------------------------------------------------------------


class SaidHost:
    """A host on which each command says what it is given."""

    def __init__(self, **said: str) -> None:
        self.said = said

    def run(self, argv: tuple[str, ...], *, timeout_s: float, **_: object) -> Completed:
        return Completed(tuple(argv), 0, self.said[argv[-1].strip("-")], "", 0.0)


def test_the_device_reads_three_outputs_and_shows_cards_by_logic_id():
    topology = "     Phy-ID12 Phy-ID13\nPhy-ID12 X SIO\nPhy-ID13 SIO X\n"
    device = AscendDevice()
    with pytest.raises(InputError, match="no logic id is known for card 13"):
        device.visible_env([13])
    state = device.read(SaidHost(info=TWO_CHIPS, topo=topology, m=MAP), timeout_s=1)  # type: ignore[arg-type]
    assert state.topology.domains == ((12, 13),)
    assert dict(state.versions)["driver"] == "26.1.0.b087"
    assert device.visible_env([13, 12]) == {"ASCEND_RT_VISIBLE_DEVICES": "1,0"}


def test_listings_that_disagree_on_the_cards_are_an_error():
    with pytest.raises(InputError, match=r"lists cards \[12, 13\] but .* \[4, 5, 6, 7\]"):
        AscendDevice().read(SaidHost(info=TWO_CHIPS, topo=PAIRS, m=MAP), timeout_s=1)  # type: ignore[arg-type]


# --- mutations ------------------------------------------------------------------------------------------------------

SAMPLES = [(parse_info, ONE_CHIP), (parse_info, TWO_CHIPS), (parse_info, ONE_CARD_PER_NPU), (parse_topology, PAIRS)]


@settings(deadline=None)
@given(st.sampled_from(SAMPLES), st.integers(0, 10_000))
def test_a_line_lost_anywhere_never_changes_a_reading_silently(sample, where):
    parse, text = sample
    lines = text.splitlines(keepends=True)
    del lines[where % len(lines)]
    assert_same_or_error(parse, text, "".join(lines))


@settings(deadline=None)
@given(st.sampled_from(SAMPLES), st.integers(0, 10_000))
def test_an_output_cut_off_anywhere_never_changes_a_reading_silently(sample, where):
    parse, text = sample
    assert_same_or_error(parse, text, text[: where % len(text)])


@settings(deadline=None)
@given(st.sampled_from(SAMPLES), st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_line_repeated_anywhere_never_changes_a_reading_silently(sample, source, target):
    parse, text = sample
    lines = text.splitlines(keepends=True)
    lines.insert(target % len(lines), lines[source % len(lines)])
    assert_same_or_error(parse, text, "".join(lines))


@settings(deadline=None)
@given(st.sampled_from([parse_info, parse_topology, parse_map]), st.text())
def test_garbage_is_always_an_input_error(parse, text):
    with pytest.raises(InputError):
        parse(text)


def assert_same_or_error(parse, text: str, damaged: str) -> None:
    try:
        reading = parse(damaged)
    except InputError:
        return
    whole = parse(text)
    if parse is parse_info and [(c.state, c.reason) for c in reading] != [(c.state, c.reason) for c in whole]:
        return  # said, by the state of a card
    if parse is parse_info:
        # A process row lost among several of one card cannot be seen; it stays an occupied card.
        assert [(c.id, c.health, c.hbm_used_mb, bool(c.processes)) for c in reading] == [
            (c.id, c.health, c.hbm_used_mb, bool(c.processes)) for c in whole
        ]
    else:
        assert reading == whole


# --- captures of real tools -----------------------------------------------------------------------------------------


A3_USED_MB = [37397, 37054, 37302, 37066, 37282, 37065, 37311, 37058]
A3_USED_MB += [37302, 37066, 37302, 37065, 37295, 37055, 37311, 37054]
A5_IDLE_USED_MB = [4761, 4756, 4758, 4758, 4756, 4757, 4756, 4760]
A5_ONE_USED_MB = [5086, 4761, 4759, 4757, 4763, 4760, 4759, 4762]


@pytest.mark.parametrize(
    ("name", "ids", "model", "total_mb", "used_mb", "driver"),
    [
        ("info-910b-idle.txt", range(8), "910B3", 65536, [3351, 3352, 3353, 3354, 3355, 3356, 3357, 3358], "24.1.rc2"),
        ("info-910b-alarm.txt", range(8), "910B3", 65536, [3351] * 8, "25.2.0"),
        ("info-910b-tenants.txt", range(8), "910B2", 65536, [60185, *[3332] * 5, 60185, 60185], "25.2.0"),
        ("info-a3-busy.txt", range(16), "Ascend910", 65536, A3_USED_MB, "26.1.0.b087"),
        ("info-a5-idle.txt", range(8), "Ascend950DT", 98304, A5_IDLE_USED_MB, "26.2.0.b007"),
        ("info-a5-one-process.txt", range(8), "Ascend950DT", 98304, A5_ONE_USED_MB, "26.2.0.b007"),
        ("info-container-one-card.txt", [5], "910B4", 32768, [2922], "25.2.0"),
    ],
)
def test_captured_listings(name, ids, model, total_mb, used_mb, driver):
    text = capture(name)
    cards = parse_info(text)
    assert [card.id for card in cards] == list(ids)
    assert {card.name for card in cards} == {model}
    assert {card.hbm_total_mb for card in cards} == {total_mb}
    assert [card.hbm_used_mb for card in cards] == used_mb
    assert dict(tool_version(text))["driver"] == driver


def test_captured_health_words():
    assert [card.health for card in parse_info(capture("info-910b-alarm.txt"))] == ["OK"] * 5 + ["Alarm", "OK", "OK"]
    assert [card.health for card in parse_info(capture("info-910b-tenants.txt"))] == ["OK", "Warning"] + ["OK"] * 6
    assert {card.health for card in parse_info(capture("info-a3-busy.txt"))} == {"OK"}


def test_captured_processes():
    tenants = {card.id: card.processes for card in parse_info(capture("info-910b-tenants.txt")) if card.processes}
    assert tenants == {
        0: (CardProcess(3104272, "", 116), CardProcess(3104266, "", 33895), CardProcess(3104283, "", 115)),
        6: (CardProcess(499213, "python", 56323),),
        7: (CardProcess(499214, "rtp_llm_server", 56323),),
    }
    busy = parse_info(capture("info-a3-busy.txt"))
    assert [card.processes[0].pid for card in busy] == [
        3224097, 3246544, 3268834, 3291129, 3305013, 3309226, 3313361, 3317914,
        3322118, 3326625, 3345245, 3363635, 3381076, 3398615, 3415355, 3431925,
    ]  # fmt: skip
    assert {(len(card.processes), card.processes[0].name, card.processes[0].memory_mb) for card in busy} == {
        (1, "VLLMWorker_DP", 34229)
    }
    assert [(card.npu, card.chip) for card in busy][12:14] == [(6, 0), (6, 1)]
    one = parse_info(capture("info-a5-one-process.txt"))
    assert [card.processes for card in one] == [(CardProcess(3252331, "udma_d2h_demo", 341),)] + [()] * 7


def test_captured_readings_of_power_and_temperature():
    cards = parse_info(capture("info-a3-busy.txt"))
    assert [(card.power_w, card.temperature_c) for card in cards[:3]] == [(175.9, 33), (None, 30), (176.0, 33)]


@pytest.mark.parametrize(
    ("name", "domains", "links"),
    [
        ("topo-910b-hccs.txt", (tuple(range(8)),), ("HCCS",)),
        ("topo-a3-sixteen.txt", (tuple(range(16)),), ("HCCS_SW", "SIO")),
        ("topo-a3-two-dies.txt", ((12, 13),), ("SIO",)),
        ("topo-a5-pairs.txt", ((0, 1), (2, 3), (4, 5), (6, 7)), ("SYS", "UB")),
        ("topo-a5-quads.txt", ((0, 1, 2, 3), (4, 5, 6, 7)), ("SYS", "UB")),
        ("topo-a5-short-rows.txt", ((0, 1, 2, 3),), ("UB",)),
        ("topo-pcie-only.txt", tuple((card,) for card in range(8)), ("SYS",)),
    ],
)
def test_captured_link_matrices(name, domains, links):
    topology = parse_topology(capture(name))
    assert topology.domains == domains
    assert topology.group_links(topology.cards) == links


def test_captured_sixteen_dies_are_joined_in_pairs():
    topology = parse_topology(capture("topo-a3-sixteen.txt"))
    assert [topology.link(card, card + 1) for card in range(0, 16, 2)] == ["SIO"] * 8
    assert topology.link(1, 2) == topology.link(0, 15) == "HCCS_SW"


def test_captured_id_map():
    chips = parse_map(capture("map-a3.txt"))
    assert [(chip.npu, chip.chip, chip.logic, chip.physical) for chip in chips] == [
        (card // 2, card % 2, card, card) for card in range(16)
    ]
