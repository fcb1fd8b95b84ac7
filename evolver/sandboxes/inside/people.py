"""Who is who in the sandbox: control (root without most powers, or the one uid there is), screen, agent, witness."""

import contextlib
import os
import signal
import subprocess
import time

CONTROL, AGENT, SCREEN, RELAY, WITNESS = 0, 1000, 1001, 1002, 1003
HOME, WITNESS_HOME = "/home/user", "/tmp/.witness"
SKELETON = "/opt/evolver/skel"  # what a new home holds
EVIDENCE = "/evidence/"  # what the agent may read and, where there are users, not change
TICKS = os.sysconf("SC_CLK_TCK")
SEPARATE = os.getuid() == 0  # else one uid: what keeps control alive is being PID 1 of the process namespace
ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/games",
    "HOME": HOME, "USER": "user", "LOGNAME": "user", "SHELL": "/bin/bash",
    "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat",
    "DEBIAN_FRONTEND": "noninteractive", "PYTHONDONTWRITEBYTECODE": "1", "XDG_RUNTIME_DIR": "/tmp/run-user",
}  # fmt: skip
SCREEN_ENV = {
    "DISPLAY": ":0", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/tmp/run-user/bus", "XDG_CURRENT_DESKTOP": "openbox",
    "GTK_MODULES": "gail:atk-bridge", "GNOME_ACCESSIBILITY": "1", "NO_AT_BRIDGE": "0", "SAL_USE_VCLPLUGIN": "gtk3",
    "GSETTINGS_BACKEND": "memory", "GIO_USE_VFS": "local", "GDK_BACKEND": "x11", "LIBGL_ALWAYS_SOFTWARE": "1",
}  # fmt: skip


def proxy_env(port):
    """What tells programs the way out; nothing but the sandbox itself is asked directly."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    local = {"no_proxy": "localhost,127.0.0.1", "NO_PROXY": "localhost,127.0.0.1"}
    return dict.fromkeys(names, f"http://127.0.0.1:{port}") | local


@contextlib.contextmanager
def acting_as(uid):
    """File access with that user's rights; the real uid stays, so that user can't signal or trace this process."""
    if not SEPARATE:
        yield
        return
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def owner_of(path):
    """The user that writes a file which comes from outside."""
    return CONTROL if os.path.normpath(path).startswith(EVIDENCE) else AGENT


def popen(argv, uid=AGENT, **options):
    """Starts a process of that user in a session of its own, with closed stdin unless told otherwise."""
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("cwd", HOME)
    if SEPARATE:
        options |= {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.Popen(argv, start_new_session=True, **options)


def parents():
    """pid -> parent pid of every live process but this one (zombies left out)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as handle:
                fields = handle.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1])
    return found


def work(spared):
    """(CPU seconds that the agent's processes used so far, how many of them wait for a core or a disk right now)."""
    used, waiting = 0.0, 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and int(name) not in spared:
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as handle:
                fields = handle.read().rpartition(b")")[2].split()
                used += (int(fields[11]) + int(fields[12])) / TICKS
                waiting += fields[0] in (b"R", b"D")
    return used, waiting


def reap(known=()):
    """Collects orphans that died; processes in `known` (pid -> Popen) are left to their owners."""
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if dead.si_pid in known:
                known.pop(dead.si_pid).poll()
            else:
                os.waitpid(dead.si_pid, 0)


def kill_since(before, spared):
    """Kills every process that is neither in `before` nor descends from one in `spared`, and waits for their end."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        tree = parents()
        doomed = [pid for pid in tree if pid not in before and not _descends(pid, tree, spared)]
        if not doomed:
            return
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap(KNOWN)
        time.sleep(0.005)


def _descends(pid, tree, spared):
    while pid in tree:
        if pid in spared:
            return True
        pid = tree[pid]
    return False


def kill_agent(spared):
    """Kills the agent's processes, its way out and the witness; raises RuntimeError when one still lives after 5 s."""
    deadline = time.monotonic() + 5
    while True:
        for uid in (AGENT, RELAY, WITNESS) if SEPARATE else ():
            child = os.fork()
            if child == 0:
                os.setgid(uid)
                os.setuid(uid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
                os._exit(0)
            os.waitpid(child, 0)
        if not SEPARATE:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        reap(KNOWN)
        alive = set(parents()) - (spared if SEPARATE else set())
        if not alive:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes outlive SIGKILL: {sorted(alive)[:10]}")
        time.sleep(0.01)


KNOWN = {}  # pid -> Popen whose exit status somebody waits for
