"""Print a systemd timer and service, and a crontab line, for a nightly sweep at a chosen time.

Nothing is installed unless asked for; then for the calling user only.

Examples:
  python scripts/schedule.py --at 23:00 --configfile my-host.yaml
  python scripts/schedule.py --at 23:00 --install systemd
  python scripts/schedule.py --at 23:00 --remove cron
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.project import ROOT
from anchormatrix.nightly.schedule import Schedule, change_crontab, install_systemd, remove_systemd


def main() -> int:
    """Parse, print or install or remove."""
    args = _arguments()
    options = [word for file in args.configfile for word in ("--configfile", str(file.resolve()))]
    schedule = Schedule(args.at, (sys.executable, str(ROOT / "scripts" / "nightly.py"), *options), ROOT)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if args.install == "systemd":
        print("\n".join(str(path) for path in install_systemd(schedule, home)))
        print("a timer of a user runs while nobody is logged in only after: loginctl enable-linger")
    elif args.remove == "systemd":
        print("\n".join(str(path) for path in remove_systemd(schedule, home)) or "was not installed")
    elif args.install or args.remove:
        print("crontab changed" if change_crontab(schedule, install=bool(args.install)) else "nothing to change")
    else:
        print(f"# {schedule.name}.service\n{schedule.service()}\n# {schedule.name}.timer\n{schedule.timer()}")
        print(f"# crontab\n{schedule.crontab_line()}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", default="23:00", help="HH:MM, local time (default: %(default)s)")
    parser.add_argument("--configfile", type=Path, nargs="+", default=[], help="configuration of the host")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--install", choices=("systemd", "cron"), help="install for the calling user")
    what.add_argument("--remove", choices=("systemd", "cron"), help="take it away again")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
