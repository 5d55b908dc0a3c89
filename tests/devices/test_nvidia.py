"""``nvidia-smi`` outputs become the right cards, links and processes; anything damaged is an error that shows where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchormatrix.devices.nvidia import NvidiaDevice, parse_gpus, parse_health, parse_topology
from anchormatrix.devices.nvidia_processes import parse_processes
from anchormatrix.devices.saved import saved_listing
from anchormatrix.errors import InputError
from anchormatrix.hosts.base import Completed
from anchormatrix.records.host import CardProcess, CardState

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures" / "nvidia"
FIRST, SECOND = "GPU-6ee4a5be-0000-1111-2222-333344445555", "GPU-0b1c2d3e-0000-1111-2222-333344445555"

TWO_GPUS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tPIX\t0-31\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)
BY_BLANKS = """\
        GPU0    GPU1    mlx5_0  CPU Affinity
GPU0     X      PHB     NODE    0-15
GPU1    PHB      X      NODE    0-15
mlx5_0  NODE    NODE     X

Legend:
"""
GPUS = (
    "index, uuid, name, driver_version, memory.used [MiB], memory.total [MiB], temperature.gpu, power.draw [W], "
    "mig.mode.current, ecc.errors.uncorrected.volatile.total\n"
    f"0, {FIRST}, NVIDIA A100-SXM4-80GB, 550.54.15, 3 MiB, 81920 MiB, 34, 61.72 W, Disabled, 0\n"
    f"1, {SECOND}, NVIDIA A100-SXM4-80GB, 550.54.15, 40013 MiB, 81920 MiB, 41, 201.10 W, Disabled, 0\n"
)
MIG_GPUS = GPUS.replace("61.72 W, Disabled", "61.72 W, Enabled")
PROCESSES = (
    "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"
    f"{SECOND}, 4711, 40000 MiB, /usr/bin/python3 -c a, b\n"
    f"{SECOND}, 4712, [N/A], worker\n"
)


def capture(name: str) -> str:
    if not CAPTURES.is_dir():
        pytest.skip("../shared/captures is not here")
    return (CAPTURES / name).read_text(encoding="utf-8")


def test_links_of_two_gpus_without_the_network_cards():
    topology = parse_topology(TWO_GPUS)
    assert topology.cards == (0, 1)
    assert topology.links == (("X", "NV4"), ("NV4", "X"))
    assert topology.domains == ((0, 1),)


def test_a_matrix_printed_with_blanks_reads_alike():
    topology = parse_topology(BY_BLANKS)
    assert topology.links == (("X", "PHB"), ("PHB", "X"))
    assert topology.domains == ((0,), (1,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "is not the header"),
        (TWO_GPUS[: TWO_GPUS.index("GPU0\t X")], "has no row for GPU0"),
        (TWO_GPUS.replace("GPU1\tNV4", "GPU1\tNV6"), "says NV4 to GPU1, which says NV6 back"),
        (TWO_GPUS.replace("GPU0\t X \tNV4", "GPU0\tNV4\t X "), "cell 1 is 'NV4' in"),
        (TWO_GPUS.replace("GPU0\t X \tNV4", "GPU0\t X \tQQ"), "cell 2 is 'QQ' in"),
        (TWO_GPUS.replace("GPU1\tNV4\t X \tSYS\t32-63\t1\t\tN/A", "GPU1\tNV4"), "has 1 cells in"),
        (TWO_GPUS.replace("NIC0\tPIX", "GPU1\tPIX"), "comes twice"),
    ],
)
def test_a_damaged_matrix_is_an_error_that_names_the_command_and_the_line(text: str, says: str):
    with pytest.raises(InputError) as caught:
        parse_topology(text)
    assert "output of `nvidia-smi topo -m`" in str(caught.value)
    assert says in str(caught.value)


def test_cards_by_index():
    first, second = parse_gpus(GPUS)
    assert (first.id, first.npu, first.chip, first.name, first.health) == (0, 0, 0, "NVIDIA A100-SXM4-80GB", "OK")
    assert (first.hbm_used_mb, first.hbm_total_mb, first.temperature_c, first.power_w) == (3, 81920, 34, 61.72)
    assert (second.id, second.hbm_used_mb) == (1, 40013)


def test_output_without_units_reads_alike():
    plain = GPUS.replace(" MiB", "").replace(" W,", ",").replace(" [MiB]", "").replace(" [W]", "")
    assert parse_gpus(plain) == parse_gpus(GPUS)


def test_a_gpu_cut_into_instances_is_no_card_of_a_group():
    assert [card.health for card in parse_gpus(MIG_GPUS)] == ["MIG", "OK"]


def test_memory_errors_are_a_warning_and_an_error_in_place_of_a_value_a_lost_card():
    assert parse_gpus(GPUS.replace("Disabled, 0\n", "Disabled, 2\n", 1))[0].health == "Warning"
    assert parse_gpus(GPUS.replace("Disabled, 0\n", "[N/A], [N/A]\n", 1))[0].health == "OK"
    broken = parse_gpus(GPUS.replace("3 MiB, 81920 MiB, 34", "[Unknown Error], 81920 MiB, ERR!"))[0]
    assert (broken.health, broken.hbm_total_mb, broken.temperature_c) == ("Lost", None, None)
    assert broken.state is CardState.UNUSABLE


def test_processes_belong_to_their_gpu_and_unknown_memory_is_never_zero():
    cards = parse_health(GPUS + PROCESSES).cards
    assert cards[0].processes == ()
    assert cards[1].processes == (
        CardProcess(4711, "/usr/bin/python3 -c a, b", 40000),
        CardProcess(4712, "worker", 40013),
    )
    assert parse_health(GPUS).cards == parse_gpus(GPUS)


@pytest.mark.parametrize("uuid", [f"MIG-{FIRST}/1/0", "MIG-41b3f9e0-5a8e-5f1e-9d7e-1c2d3e4f5a6b"])
def test_a_process_in_an_instance_belongs_to_the_gpu_that_is_cut(uuid: str):
    text = f"gpu_uuid, pid, used_gpu_memory [MiB], process_name\n{uuid}, 7, 100 MiB, python\n"
    cards = parse_health(MIG_GPUS + text).cards
    assert cards[0].processes == (CardProcess(7, "python", 100),)
    assert cards[1].processes == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("No devices were found", "has no column index"),
        (GPUS.splitlines()[0], "lists no GPU"),
    ],
)
def test_a_damaged_listing_is_an_error_that_names_the_command_and_the_line(text: str, says: str):
    with pytest.raises(InputError) as caught:
        parse_gpus(text)
    assert "output of `nvidia-smi --query-gpu`" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GPUS.replace("40013 MiB", "40013 Mi"), "memory.used is «40013 Mi» in"),
        (GPUS.replace("40013 MiB", "90013 MiB"), "uses 90013 of 81920"),
        (GPUS.replace(SECOND, FIRST), "has the uuid of another row"),
        (GPUS.replace(", 201.10 W", ""), "has 9 cells in"),
        (GPUS.replace(FIRST, "Unable to determine"), "has no uuid in"),
        (GPUS.replace("Disabled", "Perhaps"), "mig.mode.current is 'Perhaps'"),
        (GPUS.replace("1, GPU-0b", "0, GPU-0b"), "is listed 2 times"),
        (GPUS.replace(GPUS.splitlines()[2], f"1, {SECOND}, NVIDIA"), "has 3 cells in"),
        (GPUS.replace(GPUS.splitlines()[2], ", ".join(["[GPU is lost]"] * 10)), "is lost"),
        (GPUS.replace(GPUS.splitlines()[2], "1, " + ", ".join(["[Unknown Error]"] * 9)), "«[Unknown Error]» for uuid"),
        (GPUS.replace("201.10 W", "ERR!"), "«ERR!» for power.draw"),
        (
            GPUS.replace(
                GPUS.splitlines()[2], "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error"
            ),
            "is lost: the tool says «Unable to determine",
        ),
        (GPUS.replace("A100-SXM4-80GB, 550.54.15, 40013", "A\ufffd\ufffd, 550.54.15, 40013"), "has no name in"),
    ],
)
def test_a_gpu_that_cannot_be_read_is_named_and_refuses_no_other(text: str, says: str):
    cards = parse_gpus(text)
    unusable = [card for card in cards if card.state is CardState.UNUSABLE]
    assert says in unusable[-1].reason
    assert [card.id for card in cards] in ([0, 1], [0])
    if "a second time" not in says and "Perhaps" not in says and len(unusable) == 1:
        assert sum(card.state is CardState.KNOWN for card in cards) == len(cards) - 1


@pytest.mark.parametrize("absent", ["[N/A]", "[Not Supported]", "N/A", "[Insufficient Permissions]"])
def test_memory_that_is_not_told_makes_a_card_partly_known_and_usable(absent: str):
    first, second = parse_gpus(GPUS.replace("3 MiB, 81920 MiB, 34", f"{absent}, {absent}, 34"))
    assert (first.hbm_used_mb, first.hbm_total_mb, first.health) == (None, None, "OK")
    assert (first.state, first.reason) == (CardState.PARTLY, "does not tell memory.used and memory.total")
    assert second.state is CardState.KNOWN


def test_units_banners_headers_and_line_ends_change_no_reading():
    whole = parse_gpus(GPUS)
    header = GPUS.splitlines()[0]
    assert parse_gpus(GPUS.replace("81920 MiB", "80 GiB")) == whole
    assert parse_gpus(GPUS.replace("\n", "\r\n")) == whole
    assert parse_gpus(GPUS.replace("\n1, ", f"\n{header}\n1, ")) == whole
    noted = parse_health("WARNING: infoROM is corrupted at gpu 0000:0B:00.0\n\n" + GPUS)
    assert noted.cards == whole
    assert noted.notes == (
        "`nvidia-smi --query-gpu` says beside its table, in 1 lines: "
        "«WARNING: infoROM is corrupted at gpu 0000:0B:00.0»",
    )


def test_all_cards_lost_is_refused_with_the_reasons():
    text = GPUS.splitlines()[0] + "\n0, " + ", ".join(["[GPU is lost]"] * 9) + "\n"
    with pytest.raises(InputError, match=r"no card of 1 can be used: card 0 is lost: the tool says «\[GPU is lost\]»"):
        parse_health(text)


def test_a_matrix_with_fewer_rows_than_cards_keeps_what_its_columns_tell():
    topology = parse_topology(TWO_GPUS[: TWO_GPUS.index("GPU1\tNV4")])
    assert topology.links == (("X", "NV4"), ("NV4", "X"))
    three = parse_topology("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV1\tNV1\n")
    assert three.links == (("X", "NV1", "NV1"), ("NV1", "X", "NA"), ("NV1", "NA", "X"))


@pytest.mark.parametrize("text", ["what", PROCESSES.replace(SECOND, "GPU-else")])
def test_damaged_processes_are_an_error(text: str):
    with pytest.raises(InputError, match="nvidia-smi --query-compute-apps"):
        parse_processes(text, {SECOND: parse_gpus(GPUS)[1]})


@pytest.mark.parametrize("uuid", [SECOND, "[Unknown Error]"])
def test_a_process_on_a_lost_card_refuses_no_other(uuid: str):
    header, first, second = GPUS.splitlines()
    cells = [cell.strip() for cell in second.split(",")]
    cells[1], cells[6] = uuid, "ERR!"
    broken = ", ".join(cells)
    cards = parse_health("\n".join([header, first, broken, PROCESSES])).cards
    assert [(card.state.value, len(card.processes)) for card in cards] == [
        ("known", 0),
        ("unusable", 2 if uuid == SECOND else 0),
    ]


def test_processes_that_a_lost_card_keeps_the_tool_from_telling_are_not_told():
    header, first, _ = GPUS.splitlines()
    lost = "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error"

    class LostHost:
        def run(self, argv: tuple[str, ...], *, timeout_s: float, **_: object) -> Completed:
            said = {"topo": TWO_GPUS, "--query-compute-apps": lost, "--query-gpu": f"{header}\n{first}\n{lost}"}
            return Completed(tuple(argv), 15, said[argv[1].partition("=")[0]], "", 0.0)

    cards = NvidiaDevice().read(LostHost(), timeout_s=1).cards  # type: ignore[arg-type]
    assert [(card.state.value, card.reason) for card in cards] == [
        ("partly known", "does not tell its processes"),
        ("unusable", f"is lost: the tool says «{lost}»"),
    ]
    (card,) = parse_health(f"{header}\n{first}\n{PROCESSES.splitlines()[0]}\n{lost}\n").cards
    assert (card.state.value, card.processes) == ("known", ())


def test_of_a_listing_that_is_repeated_the_last_row_of_a_card_counts():
    rows = GPUS[GPUS.index("0, GPU") :]
    for between in ("", GPUS[: GPUS.index("0, GPU")]):
        listing = parse_health(GPUS + between + rows.replace("40013 MiB", "5 MiB"))
        assert [(card.state.value, card.hbm_used_mb) for card in listing.cards] == [("known", 3), ("known", 5)]
        assert listing.notes == ("`nvidia-smi --query-gpu` lists cards 0, 1 again: the last row counts",)
    lost = parse_health(GPUS + rows.replace(SECOND, "[GPU is lost]")).cards
    assert [(card.state.value, card.reason) for card in lost] == [
        ("known", ""),
        (
            "unusable",
            "is listed 2 times: run the tool again and give one output as it comes; when the rows are still two, "
            "reset the card or its driver",
        ),
    ]


def test_of_several_outputs_in_one_text_the_last_counts():
    later = GPUS.replace("40013 MiB", "5 MiB") + PROCESSES.replace("4711", "4713")
    listing = parse_health(GPUS + PROCESSES + later)
    assert [(card.state.value, card.hbm_used_mb) for card in listing.cards] == [("known", 3), ("known", 5)]
    assert [process.pid for process in listing.cards[1].processes] == [4713, 4712]
    assert listing.notes == (
        "there are 2 outputs of `nvidia-smi --query-gpu`, from lines 1 and 7: that from line 7 counts",
    )
    cut = parse_health(GPUS + PROCESSES + GPUS.splitlines()[0])
    assert [process.pid for process in cut.cards[1].processes] == [4711, 4712]
    assert "from line 1 counts; the one from line 7 cannot be read: lists no GPU after «index, uuid" in cut.notes[-1]


def test_a_matrix_that_comes_twice_is_read_once_and_two_matrices_are_told_apart_by_their_lines():
    assert parse_topology(TWO_GPUS + TWO_GPUS) == parse_topology(TWO_GPUS)
    with pytest.raises(InputError, match=r"line 13.*: differs from the output that begins at line 1 «"):
        parse_topology(TWO_GPUS + TWO_GPUS.replace("NV4", "PIX"))


def test_a_process_row_that_cannot_be_read_is_a_process_of_its_gpu():
    listing = parse_health(GPUS + PROCESSES.replace("4711", "x"))
    first, second = listing.cards
    assert (first.state, second.state) == (CardState.KNOWN, CardState.PARTLY)
    assert [(one.pid, one.name, one.memory_mb) for one in second.processes] == [
        (0, "a row that cannot be read", 40013),
        (4712, "worker", 40013),
    ]
    row = f"pid is «x» in «{SECOND}, x, 40000 MiB, /usr/bin/python3 -c a, b»"
    assert second.reason == f"has 1 process rows that cannot be read: {row}"
    assert listing.notes == (f"`nvidia-smi --query-compute-apps` has 1 rows that cannot be read: {row}",)


def test_a_process_row_that_tells_no_gpu_makes_every_card_partly_known():
    listing = parse_health(GPUS + PROCESSES + "no such row\n")
    assert [(card.state, len(card.processes)) for card in listing.cards] == [
        (CardState.PARTLY, 0),
        (CardState.PARTLY, 2),
    ]
    assert listing.cards[0].reason == (
        "may have a process of which the row cannot be read: has 1 cells in «no such row»"
    )


def test_words_that_nothing_runs_are_no_process():
    said = "No running processes found\n"
    for text in (said, PROCESSES.splitlines(keepends=True)[0] + said):
        assert parse_processes(text, {SECOND: parse_gpus(GPUS)[1]}).by_gpu == {}


def test_colours_and_a_byte_order_mark_hide_no_listing(tmp_path: Path):
    saved = tmp_path / "gpus.csv"
    for before in ("\x1b[32m", "\ufeff"):
        saved.write_text(before + GPUS, encoding="utf-8")
        assert [card.id for card in saved_listing(saved).cards] == [0, 1]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_an_output_cut_off_or_robbed_of_a_line_never_changes_links_silently(cut, line):
    lines = TWO_GPUS.splitlines(keepends=True)
    del lines[line % len(lines)]
    for damaged in (TWO_GPUS[: cut % len(TWO_GPUS)], "".join(lines)):
        try:
            assert parse_topology(damaged) == parse_topology(TWO_GPUS)
        except InputError:
            continue


@settings(deadline=None)
@given(st.sampled_from([parse_gpus, parse_topology]), st.text())
def test_garbage_is_always_an_input_error(parse, text):
    with pytest.raises(InputError):
        parse(text)


class SaidHost:
    """A host on which each command says what it is given."""

    def run(self, argv: tuple[str, ...], *, timeout_s: float, **_: object) -> Completed:
        said = {"topo": TWO_GPUS, "--query-compute-apps": PROCESSES, "--query-gpu": GPUS}
        return Completed(tuple(argv), 0, said[argv[1].partition("=")[0]], "", 0.0)


def test_the_device_reads_three_outputs_and_shows_cards_in_the_order_of_the_bus():
    device = NvidiaDevice()
    state = device.read(SaidHost(), timeout_s=1)  # type: ignore[arg-type]
    assert state.topology.cards == (0, 1)
    assert [len(card.processes) for card in state.cards] == [0, 2]
    assert dict(state.versions) == {"driver": "550.54.15", "tool": "550.54.15"}
    assert device.visible_env([1, 0]) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}


def test_captured_host_with_a_switch_is_one_domain():
    topology = parse_topology(capture("topo-8gpu-nvswitch.txt"))
    assert topology.cards == tuple(range(8))
    assert topology.group_links(topology.cards) == ("NV18",)
    assert topology.domains == (tuple(range(8)),)


def test_captured_host_with_bridges_has_pairs():
    topology = parse_topology(capture("topo-4gpu-nvlink-pairs.txt"))
    assert topology.domains == ((0, 1), (2, 3))
    assert (topology.link(0, 1), topology.link(1, 2)) == ("NV12", "SYS")


def test_captured_host_with_pcie_only_has_no_domain_of_two():
    topology = parse_topology(capture("topo-8gpu-pcie.txt"))
    assert topology.domains == tuple((card,) for card in range(8))
    assert topology.links[4] == ("SYS", "SYS", "SYS", "SYS", "X", "PIX", "NODE", "NODE")
