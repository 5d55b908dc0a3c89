"""Read the cards of a host, the links between them and the interconnect domains they form; print or write JSON.

python scripts/rules/probe_topology.py --config my-host.yaml    ask the live host
python scripts/rules/probe_topology.py --from-file topo.txt     read `npu-smi info -t topo` or `nvidia-smi topo -m`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.devices.open import open_device
from anchormatrix.devices.saved import saved_topology
from anchormatrix.hosts.open import open_host
from anchormatrix.store.codec import record_text, write_record


def main() -> int:
    """Parse, read, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=DEFAULT_FILE, help="the host to ask (default: %(default)s)")
    parser.add_argument("--from-file", type=Path, metavar="FILE", help="read a saved output; no host is asked")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there instead of printing it")
    args = parser.parse_args()
    if args.from_file:
        topology = saved_topology(args.from_file)
    else:
        settings = load_settings(args.config)
        host = open_host(settings.host)
        try:
            device = open_device(settings.device)
            topology = device.read(host, timeout_s=settings.host.command_timeout_s).topology
        finally:
            host.close()
    if args.out:
        write_record(args.out, topology)
    else:
        print(record_text(topology), end="")
    return 0


if __name__ == "__main__":
    run(main)
