"""Read the cards of a host, the links between them and the interconnect domains they form; print or write JSON.

python scripts/rules/probe_topology.py --config my-host.yaml    ask the live host
python scripts/rules/probe_topology.py --from-file topo.txt     read `npu-smi info -t topo` or `nvidia-smi topo -m`
"""

from __future__ import annotations

from anchormatrix.cli.command import run
from anchormatrix.cli.probing import probing_parser, tell
from anchormatrix.config.merge import load_settings
from anchormatrix.devices.open import open_device
from anchormatrix.devices.saved import saved_topology
from anchormatrix.hosts.open import open_host
from anchormatrix.store.codec import record_text


def main() -> int:
    """Parse, read, print or write."""
    args = probing_parser(__doc__).parse_args()
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
    tell(record_text(topology), args.out)
    return 0


if __name__ == "__main__":
    run(main)
