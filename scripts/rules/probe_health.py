"""Read health, memory and processes of the cards of a host; print or write JSON.

python scripts/rules/probe_health.py --config my-host.yaml      ask the live host (software versions included)
python scripts/rules/probe_health.py --from-file info.txt       read a saved `npu-smi info`, or a saved `nvidia-smi
                                                          --query-gpu=index,uuid,name,memory.used,memory.total
                                                          --format=csv`, if wanted followed by a saved `nvidia-smi
                                                          --query-compute-apps=gpu_uuid,pid,used_memory,process_name
                                                          --format=csv`
"""

from __future__ import annotations

from anchormatrix.cli.command import run
from anchormatrix.cli.probing import probing_parser, tell
from anchormatrix.config.merge import load_settings
from anchormatrix.devices.probe import probe_host
from anchormatrix.devices.saved import saved_listing
from anchormatrix.store.codec import plain, record_text
from anchormatrix.store.files import json_text

_PRINTED = ("id", "npu", "chip", "name", "health", "hbm_used_mb", "hbm_total_mb", "processes", "state", "reason")


def main() -> int:
    """Parse, read, print or write."""
    args = probing_parser(__doc__).parse_args()
    if args.from_file:
        listing = saved_listing(args.from_file)
        cards = [{key: plain(card)[key] for key in _PRINTED} for card in listing.cards]
        text = json_text({"cards": cards, "notes": listing.notes})
    else:
        text = record_text(probe_host(load_settings(args.config)).health)
    tell(text, args.out)
    return 0


if __name__ == "__main__":
    run(main)
