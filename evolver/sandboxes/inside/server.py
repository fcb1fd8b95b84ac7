"""PID 1 of a sandbox: answers framed requests on stdin/stdout, keeps the time-to-live, and ends when the host goes.

Usage: server.py JSON, an object of ttl_s, screen (null, or width and height in pixels), and with an allow-list proxy
(the port of the way out) and relay_fd (its inherited connection; without one the host starts the relay itself).
"""

import os
import sys

sys.path.append("/usr/lib/python3/dist-packages")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import json
import select
import signal
import stat
import subprocess
import time

import frames
import people
import shell

READ_LIMIT = 64 << 20
WITNESSED = ".witness"  # in the frozen home: what the witness printed, never the agent's file
NOT_FROZEN = (
    ".config", ".cache", ".local", ".dbus", ".mozilla", ".gtkrc-2.0", ".Xauthority", ".pki", ".gnupg", WITNESSED,
)  # fmt: skip


class Refused(Exception):
    """An answer that is the asker's to handle: (kind, message)."""


class Server:
    def __init__(self, ttl_s, screen=None, proxy=None, relay_fd=None):
        self.ends_at = time.monotonic() + ttl_s
        self.env, self.screen, self.input, self.reader, self.witness = dict(people.ENV), None, None, None, None
        if proxy:
            self.env |= people.proxy_env(proxy)
        if relay_fd is not None:
            start_relay(proxy, relay_fd)
        people.popen(["cp", "-rn", f"{people.SKELETON}/.", people.HOME], env=people.ENV).wait()  # before any command
        if screen:
            from screen import Screen

            self.env |= people.SCREEN_ENV
            self.screen = Screen(*screen, self.env)
        self.spared = {process.pid for process in people.KNOWN.values()}
        self.shell = shell.Shell(self.env, self.spared)

    def tick(self):
        people.reap(people.KNOWN)
        if time.monotonic() > self.ends_at:
            raise EOFError("the machine's time was over")

    def answer(self, request, body):
        return getattr(self, "on_" + request.pop("op"))(body=body, **request)

    def on_adopt(self, ttl_s, body):
        self.ends_at = time.monotonic() + ttl_s
        return {}, b""

    def _with_screen(self):
        if self.screen is None:
            raise Refused("bad_action", "this sandbox has no screen")
        return self.screen

    def on_exec(self, command, timeout_s, env, body):
        if self.screen:
            self.screen.wait_for_x()
        return shell.run_fresh(command, timeout_s, self.env | env, self.spared), b""

    def on_bash(self, command, timeout_s, body):
        if self.screen:
            self.screen.wait_for_x()
        return self.shell.run(command, timeout_s), b""

    def on_spawn(self, command, body):
        if self.screen:
            self.screen.wait_ready()
        shell.spawn(command, self.env)
        return {}, b""

    def on_witness(self, command, body):
        """Starts a program under a user of its own, in a folder of its own with the files of `body` (a tar). What it
        prints stays in its pipe (64 KiB, then it waits), which nobody reads before the agent is dead."""
        import io
        import tarfile

        if self.witness is not None:
            raise Refused("os", "there is a witness already")
        if self.screen:
            self.screen.wait_ready()
        with people.acting_as(people.WITNESS):
            os.mkdir(people.WITNESS_HOME, 0o700)
            with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                tar.extractall(people.WITNESS_HOME)
        self.witness = people.popen(
            ["bash", "-c", f"cd && {command}"], uid=people.WITNESS, cwd="/",
            env=self.env | {"HOME": people.WITNESS_HOME}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        people.KNOWN[self.witness.pid] = self.witness
        self.spared.add(self.witness.pid)
        return {}, b""

    def on_read(self, path, body):
        with people.acting_as(people.AGENT):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise Refused("os", f"{path} is not a regular file")
                data = file.read(READ_LIMIT + 1)
        if len(data) > READ_LIMIT:
            raise Refused("os", f"{path} is larger than {READ_LIMIT >> 20} MiB")
        return {}, data

    def on_write(self, path, mode, body):
        with people.acting_as(people.owner_of(path)):
            os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                os.fchmod(handle, mode)
        return {}, b""

    def on_windows(self, drawn, body):
        return {"windows": self._with_screen().windows(drawn=drawn)}, b""

    def on_shot(self, settle_s, body):
        png, settled = self._with_screen().shot(settle_s)
        return {"settled": settled, "width": self.screen.width, "height": self.screen.height}, png

    def on_act(self, action, body):
        screen = self._with_screen()
        screen.wait_ready()
        import keyboard

        if self.input is None:
            self.input = keyboard.Input(screen.x, screen.width, screen.height, screen.xvfb.pid)
        try:
            self.input.act(action)
        except keyboard.BadAction as error:
            raise Refused("bad_action", str(error)) from error
        screen.last_act = time.monotonic()
        return {}, b""

    def on_elements(self, body):
        self._with_screen().wait_ready()
        for _ in range(2):  # the reader is the agent's process and may have been killed
            try:
                return {}, self._ask_reader()
            except (OSError, EOFError, TimeoutError):
                self.reader.kill()
                self.spared.discard(self.reader.pid)
                self.reader = None
        raise Refused("lost", "the accessibility reader does not answer")

    def _ask_reader(self):
        if self.reader is None:
            program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree.py")
            self.reader = people.popen(
                ["python3", "-I", "-S", program, f"{self.screen.width}x{self.screen.height}"], env=self.env,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            people.KNOWN[self.reader.pid] = self.reader
            self.spared.add(self.reader.pid)
        self.reader.stdin.write(json.dumps(self.screen.windows("_NET_CLIENT_LIST_STACKING")[::-1]).encode() + b"\n")
        self.reader.stdin.flush()
        data, deadline = b"", time.monotonic() + 14
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reader.stdout], [], [], left)[0]:
                raise TimeoutError
            part = os.read(self.reader.stdout.fileno(), 1 << 20)
            if not part or len(data) > 8 << 20:
                raise EOFError
            data += part
        return data

    def on_freeze(self, limit, body):
        if self.screen:
            self.screen.close_windows()
        people.kill_agent({self.screen.xvfb.pid} if self.screen else set())
        # A file that was open in an office application has a lock beside it, which is nobody's result.
        locks = ["find", people.HOME, "-xdev", "-type", "f", "-name", ".~lock.*#", "-delete"]
        people.popen(locks, env=people.ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait()
        argv = ["tar", "--create", "--file=-", f"--directory={people.HOME}", "--numeric-owner", "--sort=name",
                "--warning=none", "--ignore-failed-read", "--transform=flags=r;s,^\\./,,"]  # fmt: skip
        argv += ["--anchored", "--no-wildcards"]  # as wildcards, a deep tree of folders takes minutes to match
        argv += [f"--exclude=./{name}" for name in NOT_FROZEN] + ["."]
        tar = people.popen(argv, env=people.ENV, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        parts, size = [self._witnessed()], 0
        while part := tar.stdout.read(1 << 20):
            parts.append(part)
            size += len(part)
            if size > limit:
                tar.kill()
                raise Refused("too_large", f"the agent's home is larger than {limit >> 20} MiB")
        if tar.wait() not in (0, 1):
            raise Refused("lost", f"tar ended with {tar.returncode}")
        return {}, b"".join(parts)

    def _witnessed(self):
        """What the witness printed as a file of the frozen home (the first blocks of a tar); nothing without one."""
        if self.witness is None:
            return b""
        import tarfile

        os.set_blocking(self.witness.stdout.fileno(), False)
        said = self.witness.stdout.read() or b""
        entry = tarfile.TarInfo(WITNESSED)
        entry.size = len(said)
        return entry.tobuf(tarfile.GNU_FORMAT) + said + bytes(-len(said) % tarfile.BLOCKSIZE)


def start_relay(port, connection):
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "relay.py")
    relay = people.popen(
        ["python3", "-I", "-S", program, str(port)], uid=people.RELAY, cwd="/", env=people.ENV, stdin=connection,
        stdout=connection, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(connection)
    people.KNOWN[relay.pid] = relay


def serve(pipe, server):
    while True:
        server.tick()
        if not select.select([pipe.reader], [], [], 1)[0]:
            continue
        request, body = pipe.receive()
        try:
            answer, data = server.answer(request, body)
        except Refused as error:
            answer, data = {"error": error.args[0], "message": error.args[1]}, b""
        except FileNotFoundError as error:
            answer, data = {"error": "missing", "message": str(error.filename)}, b""
        except OSError as error:
            answer, data = {"error": "os", "message": f"{error.strerror}: {error.filename}"}, b""
        except Exception as error:  # noqa: BLE001  the sandbox's own failure must reach the host as that
            gone = type(error).__name__ in ("ConnectionClosedError", "DisplayConnectionError")
            message = "the X server has ended" if gone else f"{type(error).__name__}: {error}"
            answer, data = {"error": "lost", "message": message}, b""
        pipe.send(answer, data)


def main():
    pipe = frames.Pipe(os.dup(0), os.dup(1))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.umask(0o022)
    if people.SEPARATE:
        os.setgroups([])
    else:
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE 0: the agent can't open this process's descriptors
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a handler, PID 1 can't be signalled from inside
    try:
        serve(pipe, Server(**json.loads(sys.argv[1])))
    except EOFError as end:
        os.write(2, str(end).encode())
        os._exit(0)


if __name__ == "__main__":
    main()
