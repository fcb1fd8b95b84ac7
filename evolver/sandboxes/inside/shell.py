"""Commands of the agent: the one persistent bash, and fresh ones; output is bounded and nothing outlives a timeout."""

import codecs
import os
import select
import subprocess
import time

import people

LIMIT = 16_000  # characters of output, half from its head and half from its tail
# Commands come in on 198, each ended by NUL, and exit codes leave on 199: nothing that a command prints is mistaken.
DRIVER = (
    "shopt -s expand_aliases; while IFS= read -r -d '' -u 198 __command; do "
    'eval "$__command" 198<&- 199>&- </dev/null; printf "%s\\0" "$?" >&199; done'
)


class Output:
    """Keeps the head and the tail of a byte stream as valid text and counts what lies between."""

    def __init__(self):
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.head, self.tail, self.total = "", "", 0

    def feed(self, data, final=False):
        text = self.decode(data, final).replace("\0", "\ufffd")
        self.total += len(text)
        room = LIMIT // 2 - len(self.head)
        self.head += text[:room] if room > 0 else ""
        self.tail = (self.tail + text[max(room, 0) :])[-LIMIT // 2 :]

    def result(self):
        """(text, characters left out)"""
        self.feed(b"", final=True)
        cut = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {cut} characters left out ...]\n" if cut else ""
        return self.head + middle + self.tail, cut


def _drain(fd, output):
    """Reads what is there; False at the end of the stream."""
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        output.feed(data)


class Shell:
    """The persistent bash. `spared` are the pids of the desktop: what descends from them is never a command's child."""

    def __init__(self, env, spared):
        self.env, self.spared, self.process, self.cwd = env, spared, None, people.HOME

    def _start(self):
        out_r, out_w = os.pipe()
        command_r, self.command = os.pipe()
        self.status, status_w = os.pipe()
        os.set_blocking(out_r, False)
        redirect = f"exec 198<&{command_r} 199>&{status_w} {command_r}<&- {status_w}>&-; {DRIVER}"
        self.process = people.popen(
            ["bash", "--norc", "--noprofile", "-c", redirect], env=self.env, cwd=self.cwd, stdout=out_w,
            stderr=out_w, pass_fds=(command_r, status_w),
        )  # fmt: skip
        self.out = out_r
        people.KNOWN[self.process.pid] = self.process
        for fd in (out_w, command_r, status_w):
            os.close(fd)

    def _stop(self):
        self.process.kill()
        self.process.wait()
        people.KNOWN.pop(self.process.pid, None)
        for fd in (self.out, self.command, self.status):
            os.close(fd)
        self.process = None

    def _remember_cwd(self):
        try:
            with people.acting_as(people.AGENT):
                self.cwd = os.readlink(f"/proc/{self.process.pid}/cwd")
                if not os.path.isdir(self.cwd):
                    self.cwd = people.HOME
        except OSError:
            self.cwd = people.HOME

    def run(self, command, timeout_s):
        """Runs one command in the shell; the reply's keys are those of protocols.Ran."""
        if self.process is None or self.process.poll() is not None:
            if self.process is not None:
                self._stop()
            self._start()
        output, notice = Output(), ""
        _drain(self.out, output)  # what background jobs printed since
        before = set(people.parents())
        deadline = time.monotonic() + timeout_s
        code = self._code(command, output, deadline)
        timed_out = code == "timeout"
        if timed_out:
            self._remember_cwd()
            people.kill_since(before - {self.process.pid}, self.spared)
            _drain(self.out, output)
            self._stop()
            notice = (
                f"the command was killed after {timeout_s:g} s; the shell was restarted in {self.cwd} "
                "(variables and functions are gone)"
            )
        elif code == "exit":
            _drain(self.out, output)
            status = self.process.wait()
            self._stop()
            code, self.cwd = status if status >= 0 else 128 - status, people.HOME
            notice = "the shell ended; a new one was started in /home/user"
        text, cut = output.result()
        return {
            "exit_code": None if timed_out else int(code), "output": text, "timed_out": timed_out,
            "truncated_chars": cut, "notice": notice,
        }  # fmt: skip

    def _code(self, command, output, deadline):
        data = memoryview(command.encode("utf-8", "surrogateescape").replace(b"\0", b"") + b"\0")
        status = b""
        os.set_blocking(self.command, False)
        while (left := deadline - time.monotonic()) > 0:
            readable, writable, _ = select.select(
                [self.out, self.status], [self.command] if data else [], [], min(left, 1)
            )
            people.reap(people.KNOWN)
            if writable:
                try:
                    data = data[os.write(self.command, data) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return "exit"
            if self.out in readable:
                _drain(self.out, output)
            if self.status in readable:
                part = os.read(self.status, 16)
                if not part:
                    return "exit"
                status += part
                if status.endswith(b"\0"):
                    _drain(self.out, output)
                    return status[:-1]
        return "timeout"


def run_fresh(command, timeout_s, env, spared):
    """Runs a fresh `bash -c`; background children may outlive it, but not a timeout."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    before, output = set(people.parents()), Output()
    process = people.popen(["bash", "-c", command], env=env, stdout=write, stderr=write)
    people.KNOWN[process.pid] = process
    os.close(write)
    deadline, poller, open_ = time.monotonic() + timeout_s, os.pidfd_open(process.pid), True
    while (left := deadline - time.monotonic()) > 0 and process.poll() is None:
        select.select([read, poller] if open_ else [poller], [], [], min(left, 1))
        open_ = open_ and _drain(read, output)
    code = process.poll()
    if code is None:
        people.kill_since(before, spared)
        process.wait()
    people.KNOWN.pop(process.pid, None)
    if open_:
        _drain(read, output)
    os.close(poller)
    os.close(read)
    text, cut = output.result()
    code = code if code is None or code >= 0 else 128 - code
    return {"exit_code": code, "output": text, "timed_out": code is None, "truncated_chars": cut, "notice": ""}


def spawn(command, env):
    """Starts a command that nobody waits for."""
    people.popen(["bash", "-c", command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
