"""How a room is laid out: the script that mounts what is seen in it, and the program that stays there as process 1."""

from __future__ import annotations

import os

HIDDEN = ("/run", "/mnt", "/media", "/srv", "/var/tmp")

SETUP = r"""
set -eu
base=$1; files=$2; numbers=$3; python=$4; attend=$5; shift 5
mount -t tmpfs -o "mode=755,$files" room "$base"
mkdir "$base/upper" "$base/work" "$base/root" "$base/tmp"
chmod 1777 "$base/tmp"
root=$base/root
layers() { mount -t overlay -o "$4lowerdir=$1,upperdir=$base/$2,workdir=$base/$3" overlay "$root$1"; }
# Without root, a folder with mounts in it, as / is, cannot be a layer: then each folder below it is one by itself.
layers / upper work "" 2>/dev/null || mount --bind "$root" "$root"
[ -e "$root/usr" ] || for place in /*; do
  case $place in /proc|/sys|/dev|/tmp|/run) mkdir "$root$place"; continue;; esac
  if [ -L "$place" ]; then cp -P "$place" "$root$place"
  elif [ -d "$place" ]; then
    mkdir -p "$root$place" "$base/uppers$place" "$base/works$place"
    layers "$place" "uppers$place" "works$place" userxattr, 2>/dev/null || true
  fi
done
[ -e "$root/usr/bin" ] || { echo "overlay: /usr cannot be a layer" >&2; exit 1; }
for asked in "$@"; do
  place=${asked#*:}
  case $asked in
    hide:*) [ ! -d "$root$place" ] || mount -t tmpfs -o mode=755,size=64m hidden "$root$place";;
    show:*) mkdir -p "$root$place"; mount --bind "$place" "$root$place"; mount -o remount,bind,ro "$root$place";;
  esac
done
mount --bind "$base/tmp" "$root/tmp"
mount -t tmpfs -o mode=755,size=64k dev "$root/dev"
for device in null zero full random urandom tty; do
  : > "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777,size=256m shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" && ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"; ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t proc proc "$root/proc"
[ -z "$numbers" ] || echo "$numbers" > "$root/proc/sys/kernel/pid_max"
for place in sys sysrq-trigger irq bus fs; do
  [ ! -e "$root/proc/$place" ] || mount --bind -o ro "$root/proc/$place" "$root/proc/$place"
  [ ! -e "$root/proc/$place" ] || mount -o remount,bind,ro "$root/proc/$place"
done
mount -t tmpfs -o mode=755,size=0 sys "$root/sys" 2>/dev/null || true
mkdir -p "$root/logs/agent" "$root/logs/verifier" "$root/logs/artifacts" "$root/app"
chmod 777 "$root/logs/agent" "$root/logs/verifier" "$root/logs/artifacts"
mkdir "$root/.outer"
cd "$root"
[ "$(ls /sys/class/net 2>/dev/null)" ] || ip link set lo up 2>/dev/null || true
exec "$python" -ISc "$attend"  # from outside the room, where it may not be seen
"""

ATTEND = """
import os, signal
if os.system("pivot_root . .outer && cd / && umount -l /.outer && rmdir /.outer"):
    raise SystemExit("the machine's root could not be left")
os.chdir("/")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whose parent has gone is buried at once, and takes no place
os.write(1, b"ready\\n")
while os.read(0, 1):
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.write(1, b"done\\n")
"""
"""Process 1: it ends, and with it every other, when whoever holds the other end of its input does. Until then it ends
all others when asked, since it alone needs no place for a new process to do so."""


def hidden_homes() -> list[str]:
    """Where home directories lie."""
    return ["/home", os.path.expanduser("~root")]


def shown() -> list[str]:
    """The folders in home directories that programs are found in: a tool chain is no secret."""
    folders = dict[str, None]()
    for folder in search_path().split(os.pathsep):
        for home in hidden_homes():
            inner = folder.removeprefix(home + "/") if folder.startswith(home + "/") else ""
            steps = inner.split("/")[: 2 if home == "/home" else 1]
            if inner and os.path.isdir(os.path.join(home, *steps)):
                folders[os.path.join(home, *steps)] = None
    return list(folders)


def search_path() -> str:
    """Where programs are looked for, here and in a room."""
    return os.pathsep.join(dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/sbin"]))
